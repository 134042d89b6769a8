"""Tasks with the queue's own options, and the decorator that makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, datetime, timedelta
from typing import Any, cast, overload

from asgiref.sync import sync_to_async

from .bounds import LEASE, MAX_ATTEMPTS, RUN_AFTER, TIMEOUT
from .compat import (
    DEFAULT_TASK_BACKEND_ALIAS,
    DEFAULT_TASK_PRIORITY,
    DEFAULT_TASK_QUEUE_NAME,
    InvalidTask,
    Task,
    TaskResult,
    task_backends,
)
from .payloads import storable
from .retry import RetryPolicy
from .states import MAX_QUEUE_NAME, MAX_TASK_PATH, MAX_UNIQUE_KEY, Fencing


@dataclass(frozen=True, slots=True, kw_only=True)
class PgTask(Task):
    """A task of `django.tasks` with the options of this queue; None means the backend's option.

    `max_attempts` counts all starts, the first included. `no_retry` names exceptions that end the job at
    once. `lease`, `timeout` and `delay` are durations; `delay` is what `using(run_after=timedelta)` sets and
    is added to the database's clock. While a job with the same `unique_key` is scheduled, ready or running,
    enqueueing again returns that job.
    """

    max_attempts: int | None = None
    retry: RetryPolicy | None = None
    no_retry: tuple[type[BaseException], ...] = ()
    timeout: timedelta | None = None
    lease: timedelta | None = None
    fencing: str | None = None
    transactional: bool = False
    unique_key: str | None = None
    delay: timedelta | None = None

    def __post_init__(self) -> None:
        Task.__post_init__(self)
        if self.delay is not None and not self.get_backend().supports_defer:
            raise InvalidTask("Backend does not support run_after.")

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | timedelta | None = None,
        backend: str | None = None,
        max_attempts: int | None = None,
        unique_key: str | None = None,
    ) -> PgTask:
        """Return a copy with other defaults; `run_after` is an aware datetime or a timedelta from now.

        Raises InvalidTask if a value is out of its domain.
        """
        given = {
            "priority": priority,
            "queue_name": queue_name,
            "backend": backend,
            "max_attempts": max_attempts,
            "unique_key": unique_key,
        }
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if isinstance(run_after, timedelta):
            changes.update(delay=run_after, run_after=None)
        elif run_after is not None:
            changes.update(run_after=run_after, delay=None)
        return replace(self, **changes)

    def enqueue_many(self, calls: Iterable[Any]) -> Sequence[TaskResult]:
        """Enqueue a job for each call: a tuple of positional arguments, a dict of keyword ones, or one argument.

        One round trip per few thousand jobs, all or nothing, in the caller's transaction. Raises InvalidPayload
        as `enqueue` does, and InvalidTask if the task has a unique key.
        """
        backend: Any = self.get_backend()
        results: Sequence[TaskResult] = backend.enqueue_many(self, calls)
        return results

    async def aenqueue_many(self, calls: Iterable[Any]) -> Sequence[TaskResult]:
        """Do as `enqueue_many`, on the thread that holds the caller's transaction."""
        return await sync_to_async(self.enqueue_many, thread_sensitive=True)(calls)


_OWN_OPTIONS = frozenset(item.name for item in fields(PgTask)) - {item.name for item in fields(Task)}


@overload
def task(function: Callable[..., Any], /) -> PgTask: ...


@overload
def task(
    *,
    priority: int = ...,
    queue_name: str = ...,
    backend: str = ...,
    takes_context: bool = ...,
    max_attempts: int | None = ...,
    retry: RetryPolicy | None = ...,
    no_retry: tuple[type[BaseException], ...] = ...,
    timeout: timedelta | None = ...,
    lease: timedelta | None = ...,
    fencing: str | None = ...,
    transactional: bool = ...,
) -> Callable[[Callable[..., Any]], PgTask]: ...


def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    priority: int = DEFAULT_TASK_PRIORITY,
    queue_name: str = DEFAULT_TASK_QUEUE_NAME,
    backend: str = DEFAULT_TASK_BACKEND_ALIAS,
    takes_context: bool = False,
    **options: Any,
) -> PgTask | Callable[[Callable[..., Any]], PgTask]:
    """Make a task of a module-level function, as `django.tasks.task` does, with this queue's options typed.

    Under a backend that has no task class of its own (Django's ImmediateBackend or DummyBackend in tests) the
    options are kept, so that the same code runs, and have no effect; one with another class gets none of them.
    Raises TypeError for an option that nobody knows and InvalidTask for a value out of its domain.
    """
    unknown = sorted(options.keys() - _OWN_OPTIONS)
    if unknown:
        raise TypeError(f"@task has no option {', '.join(unknown)}")

    def wrap(function: Callable[..., Any]) -> PgTask:
        task_class = task_backends[backend].task_class
        if task_class is Task:
            task_class = PgTask
        own = options if issubclass(task_class, PgTask) else {}
        made = task_class(
            func=function,
            priority=priority,
            queue_name=queue_name,
            backend=backend,
            takes_context=takes_context,
            run_after=None,  # has no default in Django 6.0
            **own,
        )
        return cast(PgTask, made)

    return wrap(function) if function is not None else wrap


def check_task(task: Task) -> None:
    """Refuse a task that the queue cannot run. Raises InvalidTask, naming the option and its value."""
    if isinstance(task.priority, bool) or not isinstance(task.priority, int):
        raise InvalidTask(f"priority must be a whole number, not {task.priority!r}.")
    _check_run_after(task.run_after)
    _check_length("queue_name", task.queue_name, MAX_QUEUE_NAME)
    if isinstance(task, PgTask):
        _check_own_options(task)


def check_path(task: Task) -> None:
    """Refuse a task whose path does not fit its column. Raises InvalidTask."""
    _check_length("the task's path", task.module_path, MAX_TASK_PATH)


def _check_run_after(value: object) -> None:
    if value is None:
        return
    if not isinstance(value, datetime):
        cure = (
            " (a day is not an instant: give the time and the time zone)" if isinstance(value, date) else ""
        )
        raise InvalidTask(f"run_after must be an aware datetime or a timedelta, not {value!r}{cure}.")


def _check_length(name: str, value: object, limit: int) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidTask(f"{name} must be a non-empty string, not {value!r}.")
    if len(value) > limit or storable(value, limit) != value:
        raise InvalidTask(f"{name} must be at most {limit} storable characters, not {value[:60]!r}….")


def _check_own_options(task: PgTask) -> None:
    attempts = task.max_attempts
    if attempts is not None and (
        isinstance(attempts, bool) or not isinstance(attempts, int) or not MAX_ATTEMPTS.holds(attempts)
    ):
        raise InvalidTask(f"max_attempts must be between 1 and {MAX_ATTEMPTS.most}, not {attempts!r}.")
    for name, bound in (("lease", LEASE), ("timeout", TIMEOUT), ("delay", RUN_AFTER)):
        value = getattr(task, name)
        if value is not None and (not isinstance(value, timedelta) or value > bound.most):
            raise InvalidTask(f"{name} must be a timedelta of at most {bound.most.days} days, not {value!r}.")
        if value is not None and name != "delay" and value < bound.least:
            raise InvalidTask(
                f"{name} must be at least {bound.least.total_seconds():g} seconds, not {value!r}."
            )
    if not (isinstance(task.no_retry, tuple) and all(_is_exception_class(item) for item in task.no_retry)):
        raise InvalidTask(f"no_retry must be a tuple of exception classes, not {task.no_retry!r}.")
    if task.fencing is not None and task.fencing not in Fencing.values:
        raise InvalidTask(f"fencing must be one of {', '.join(Fencing.values)}, not {task.fencing!r}.")
    if task.unique_key is not None:
        _check_length("unique_key", task.unique_key, MAX_UNIQUE_KEY)
    if task.retry is not None and not callable(task.retry) and not hasattr(task.retry, "delay"):
        raise InvalidTask(f"retry must be a Backoff or a callable, not {task.retry!r}.")


def _is_exception_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)

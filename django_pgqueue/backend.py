"""The `django.tasks` backend. It imports models only when used, so that `@task` works in any `models.py`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from asgiref.sync import sync_to_async
from django.core.checks import CheckMessage
from django.utils import timezone

from .compat import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    is_heard,
    task_enqueued,
)
from .conf import MAX_MAX_ATTEMPTS, MAX_QUEUE_NAME, Options, backend_aliases, read_options
from .payloads import encode_payload, storable
from .retry import LONGEST
from .signals import tell
from .states import Fencing
from .tasks import PgTask

if TYPE_CHECKING:
    from .enqueueing import Request

MAX_TASK_PATH = 500
MAX_UNIQUE_KEY = 255
LARGEST_ID = 2**63 - 1
FARTHEST = timedelta(days=36500)


class PgQueueBackend(BaseTaskBackend):
    """Enqueues jobs as rows of the queue's table, in the caller's transaction."""

    task_class = PgTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @cached_property
    def conf(self) -> Options:
        """The backend's options. Raises ImproperlyConfigured, naming the option that is wrong."""
        return read_options(self.alias, self.options)

    @property
    def database(self) -> str:
        """Alias of the queue's database: DATABASE, or what the routers say."""
        from .rejections import queue_database  # imports models

        return queue_database(self.conf.database)

    def validate_task(self, task: Task) -> None:
        """Refuse a task that this backend cannot run. Raises InvalidTask, naming the option and its value."""
        if isinstance(task.priority, bool) or not isinstance(task.priority, int):
            raise InvalidTask(f"priority must be a whole number, not {task.priority!r}.")
        _check_run_after(task.run_after)
        _check_length("queue_name", task.queue_name, MAX_QUEUE_NAME)
        super().validate_task(task)
        _check_length("the task's path", task.module_path, MAX_TASK_PATH)
        if isinstance(task, PgTask):
            _check_own_options(task)

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Insert a job and return its result, or that of the live job with the same unique key.

        Raises InvalidPayload before any SQL for arguments that JSON or PostgreSQL cannot hold.
        """
        from .enqueueing import enqueue  # imports models

        self.validate_task(task)
        new = enqueue(
            self._request(task, encode_payload(args, kwargs)), hint=self.conf.listen, using=self.database
        )
        if new.existing:
            return self.get_result(str(new.job_id))
        result = self._new_result(task, new.job_id, new.enqueued_at, list(args), dict(kwargs))
        if is_heard(task_enqueued, logging.DEBUG):
            tell(task_enqueued, type(self), task_result=result)
        return result

    def enqueue_many(self, task: Task, calls: Iterable[Any]) -> Sequence[TaskResult]:
        """Insert a job for each call, a few thousand per round trip, all or nothing; return results in order.

        A call is a tuple of positional arguments, a dict of keyword arguments, or a single argument. `calls`
        may be a generator of any length: the results keep an id each, and are read when looked at.
        """
        from .enqueueing import enqueue_many  # imports models

        self.validate_task(task)
        if isinstance(task, PgTask) and task.unique_key is not None:
            raise InvalidTask("enqueue_many cannot enqueue several jobs under one unique_key.")
        payloads = (encode_payload(*_call(call)) for call in calls)
        ids = enqueue_many(self._request(task, ""), payloads, hint=self.conf.listen, using=self.database)
        results = EnqueuedMany(ids, self.get_result)
        if is_heard(task_enqueued, logging.DEBUG):
            for result in results:
                tell(task_enqueued, type(self), task_result=result)
        return results

    def _request(self, task: Task, payload: str) -> Request:
        from .enqueueing import Request  # imports models

        own = task if isinstance(task, PgTask) else None
        return Request(
            task=task.module_path,
            payload=payload,
            queue=task.queue_name,
            priority=task.priority,
            max_attempts=(own and own.max_attempts) or self.conf.max_attempts,
            backend=self.alias,
            run_after=_aware(task.run_after),
            delay=max(own.delay, timedelta(0)) if own and own.delay is not None else None,
            unique_key=own.unique_key if own else None,
        )

    def _new_result(
        self, task: Task, job_id: int, enqueued_at: datetime | None, args: list[Any], kwargs: dict[str, Any]
    ) -> TaskResult:
        from .results import unchecked  # imports models

        return TaskResult(
            task=unchecked(task, backend=self.alias),
            id=str(job_id),
            status=TaskResultStatus.READY,
            enqueued_at=enqueued_at,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )

    async def aenqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Do as `enqueue`, on the thread that holds the caller's transaction."""
        return await sync_to_async(self.enqueue, thread_sensitive=True)(task, args, kwargs)

    def get_result(self, result_id: str) -> TaskResult:
        """Return the job as a result. Raises TaskResultDoesNotExist for an id that no job has."""
        from .models import Failure, Job  # the app registry is ready by now
        from .results import result_of  # imports models

        job_id = _job_id(result_id)
        if job_id is None:
            raise TaskResultDoesNotExist(result_id)
        job = Job.objects.using(self.database).filter(pk=job_id).first()
        if job is None:
            raise TaskResultDoesNotExist(result_id)
        failures = Failure.objects.using(self.database).filter(job_id=job.pk).order_by("id")
        return result_of(job, failures)

    async def aget_result(self, result_id: str) -> TaskResult:
        """Do as `get_result`."""
        return await sync_to_async(self.get_result, thread_sensitive=True)(result_id)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Return the problems of a subclass's settings; the app's own check covers this class, once."""
        from .checks import check_backend  # imports models

        return [] if self.alias in backend_aliases() else check_backend(self.alias)


def _job_id(result_id: object) -> int | None:
    """Return the job's id, None for what cannot be one."""
    text = str(result_id) if isinstance(result_id, str | int) else ""
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(LARGEST_ID)):
        return None
    return int(text) if int(text) <= LARGEST_ID else None


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
        isinstance(attempts, bool) or not isinstance(attempts, int) or not 1 <= attempts <= MAX_MAX_ATTEMPTS
    ):
        raise InvalidTask(f"max_attempts must be between 1 and {MAX_MAX_ATTEMPTS}, not {attempts!r}.")
    for name, longest in (("lease", LONGEST), ("timeout", LONGEST), ("delay", FARTHEST)):
        value = getattr(task, name)
        if value is not None and (not isinstance(value, timedelta) or value > longest):
            raise InvalidTask(f"{name} must be a timedelta of at most {longest.days} days, not {value!r}.")
        if value is not None and name != "delay" and value < timedelta(milliseconds=100):
            raise InvalidTask(f"{name} must be at least 0.1 seconds, not {value!r}.")
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


def _aware(value: datetime | None) -> datetime | None:
    """Return the instant in UTC; a naive datetime (only possible without USE_TZ) is in the current time zone.

    Raises InvalidTask for an instant outside the years 1 to 9999 of UTC, which no worker could read back.
    """
    if value is None:
        return None
    try:
        aware = value if timezone.is_aware(value) else timezone.make_aware(value)
        return aware.astimezone(UTC)
    except OverflowError:
        raise InvalidTask(f"run_after is outside the years 1 to 9999 of UTC: {value!r}.") from None


def _call(call: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    if isinstance(call, tuple):
        return call, {}
    if isinstance(call, dict):
        return (), call
    return (call,), {}


class EnqueuedMany(Sequence[TaskResult]):
    """The results of jobs that were enqueued together, in order; each is read when it is looked at."""

    def __init__(self, ids: Sequence[int], get_result: Callable[[str], TaskResult]) -> None:
        self._ids = ids
        self._get_result = get_result

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> Sequence[int]:
        """The ids of the jobs, in order."""
        return self._ids

    @overload
    def __getitem__(self, index: int) -> TaskResult: ...

    @overload
    def __getitem__(self, index: slice) -> EnqueuedMany: ...

    def __getitem__(self, index: int | slice) -> TaskResult | EnqueuedMany:
        if isinstance(index, slice):
            return EnqueuedMany(self._ids[index], self._get_result)
        return self._get_result(str(self._ids[index]))

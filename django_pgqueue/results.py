"""Jobs as `django.tasks` results: also for a task whose code or queue is gone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, fields
from functools import lru_cache
from types import FunctionType
from typing import Any, overload

from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from .compat import Task, TaskError, TaskResult, TaskResultStatus, is_task, task_backends
from .lease import Lease
from .models import Failure, Job
from .payloads import arguments_in
from .states import State
from .tasks import PgTask

STATUS = {
    State.SCHEDULED: TaskResultStatus.READY,
    State.READY: TaskResultStatus.READY,
    State.RUNNING: TaskResultStatus.RUNNING,
    State.DONE: TaskResultStatus.SUCCESSFUL,
    State.FAILED: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
}


_NOTHING_YET = {"enqueued_at": None, "started_at": None, "finished_at": None, "last_attempted_at": None}


def result_of(job: Job, failures: Iterable[Failure] = ()) -> TaskResult:
    """Return the job as a TaskResult, with one TaskError per failed attempt.

    A state that a newer version wrote counts as not finished.
    """
    args, kwargs = arguments_in(job.payload)
    return make_result(
        task_of(job),
        job.pk,
        args,
        kwargs,
        status=STATUS.get(job.state, TaskResultStatus.READY),  # type: ignore[call-overload]  # a State is a str
        enqueued_at=job.enqueued_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        last_attempted_at=job.last_attempted_at,
        errors=[
            TaskError(
                exception_class_path=failure.exception_class or "django_pgqueue.exceptions.LeaseLost",
                traceback=failure.traceback or failure.message,
            )
            for failure in failures
        ],
        worker_ids=list(job.worker_ids),
        value=job.result,
    )


def task_of(job: Job) -> Task:
    """Return the job's task as it was enqueued: with the job's queue, priority and time, unchecked.

    If the code is gone, the task has a function that only carries its name.
    """
    changes = {
        "priority": job.priority,
        "queue_name": job.queue,
        "backend": job.backend,
        "run_after": job.run_after if job.run_after > job.enqueued_at else None,
    }
    task = task_at(job.task)
    return unchecked(task, **changes) if task else unchecked(None, func=_lost_function(job.task), **changes)


def task_at(path: str) -> Task | None:
    """Return the task at a dotted path, None if there is none any more."""
    try:
        task = import_string(path)
    except (Exception, SystemExit):  # the user's module may raise anything while it is imported
        return None
    return task if is_task(task) else None


def unchecked(task: Task | None, **changes: Any) -> Task:
    """Copy a task with changes, without asking the backend whether it may be enqueued that way today."""
    cls = type(task) if task is not None else PgTask
    copy = object.__new__(cls)
    for item in fields(cls):
        if item.name in changes:
            value = changes[item.name]
        elif task is not None:
            value = getattr(task, item.name)
        else:
            value = None if item.default is MISSING else item.default
        object.__setattr__(copy, item.name, value)
    return copy


def _lost_function(path: str) -> FunctionType:
    def lost(*args: Any, **kwargs: Any) -> None:
        raise ImportError(f"the task {path} no longer exists")

    module, _, name = path.rpartition(".")
    lost.__module__, lost.__qualname__, lost.__name__ = module, name, name
    return lost  # type: ignore[return-value]


@lru_cache(maxsize=32)
def sender_of(alias: str) -> type | None:
    """Return the backend class of an alias, the sender of the signals of `django.tasks`; None if it is gone."""
    return type(task_backends[alias]) if alias in task_backends else None


def _forget_senders(*, setting: str, **kwargs: Any) -> None:
    if setting == "TASKS":
        sender_of.cache_clear()


setting_changed.connect(_forget_senders, dispatch_uid="django_pgqueue.results")


def result_of_lease(lease: Lease, *, task: Task | None = None, **more: Any) -> TaskResult:
    """Return a leased job as a TaskResult without asking the database; `more` is as for `make_result`."""
    args, kwargs = arguments_in(json.loads(lease.payload))
    changes = {"priority": lease.priority, "queue_name": lease.queue, "backend": lease.backend}
    return make_result(
        unchecked(task, **changes) if task else unchecked(None, func=_lost_function(lease.task), **changes),
        lease.job_id,
        args,
        kwargs,
        enqueued_at=lease.enqueued_at,
        started_at=lease.started_at,
        last_attempted_at=lease.claimed_at,
        worker_ids=list(lease.worker_ids),
        **more,
    )


def make_result(
    task: Task,
    job_id: int,
    args: list[Any],
    kwargs: dict[str, Any],
    *,
    status: TaskResultStatus,
    value: Any = None,
    **more: Any,
) -> TaskResult:
    """Return a TaskResult; `more` are its times, errors and workers, as far as there are any."""
    result: TaskResult = TaskResult(
        task=task,
        id=str(job_id),
        status=status,
        args=args,
        kwargs=kwargs,
        backend=task.backend,
        **{**_NOTHING_YET, "errors": [], "worker_ids": [], **more},
    )
    object.__setattr__(result, "_return_value", value)
    return result


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

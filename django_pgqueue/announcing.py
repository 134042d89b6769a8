"""The three moments of a job, enqueued, started and ended, told to receivers of signals, who can change nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable

from .compat import Task, TaskError, TaskResult, TaskResultStatus, task_enqueued, task_finished, task_started
from .lease import Lease
from .log import about, logger
from .models import Job
from .outcomes import Settled, Spent
from .results import result_of, result_of_lease, sender_of, task_at
from .signals import is_heard, job_failed, tell
from .states import Kind, State


def tell_enqueued(sender: type, results: Iterable[TaskResult]) -> None:
    """Tell of new jobs; their results are read only if somebody hears it."""
    if is_heard(task_enqueued, logging.DEBUG):
        for result in results:
            tell(task_enqueued, sender, task_result=result)


def tell_started(lease: Lease, task: Task) -> None:
    """Tell that an attempt begins."""
    if is_heard(task_started, logging.INFO):
        result = result_of_lease(lease, status=TaskResultStatus.RUNNING, task=task)
        tell(task_started, sender_of(lease.backend), task_result=result)


def is_end_heard(state: str | None) -> bool:
    """Return whether anybody hears of a job that has ended in this state; of one that runs again nobody does."""
    if state == State.DONE:
        return is_heard(task_finished, logging.INFO)
    if state in (State.FAILED, State.CANCELLED):
        return is_heard(task_finished, logging.ERROR) or job_failed.has_listeners(Job)
    return False


def tell_settled(settled: Settled) -> None:
    """Tell of the end that a worker has brought about."""
    lease = settled.ending.lease
    try:
        result, sender = _result(settled), sender_of(lease.backend)
        try:
            if settled.ending.cause is not None:
                raise settled.ending.cause
        except BaseException:  # django.tasks sends its signal where sys.exc_info() is the job's exception
            tell(task_finished, sender, task_result=result)
        else:
            tell(task_finished, sender, task_result=result)
        if settled.state == State.FAILED:
            _tell_failed(lease, settled.ending.kind)
    except BaseException:  # whatever a task's module or its backend's settings do: the worker goes on
        _log_untold(lease)


def tell_spent(spent: Spent, *, using: str) -> None:
    """Tell of an end without a writer, as of any other; the job may be pruned or retried in the meantime."""
    if spent.state == State.FAILED:
        _tell_failed(spent, Kind.LEASE_EXPIRED)
    if not is_heard(task_finished, logging.ERROR):
        return
    try:
        job = Job.objects.using(using).filter(pk=spent.job_id, state=spent.state).first()
        if job is not None:
            result = result_of(job, job.failures.order_by("pk"))
            tell(task_finished, sender_of(spent.backend), task_result=result)
    except BaseException:  # a row that cannot be read, a module that raises: upkeep goes on
        _log_untold(spent)


def _result(settled: Settled) -> TaskResult:
    ending = settled.ending
    error = ending.error
    return result_of_lease(
        ending.lease,
        status=TaskResultStatus.SUCCESSFUL if settled.state == State.DONE else TaskResultStatus.FAILED,
        value=json.loads(ending.result) if ending.result is not None else None,
        errors=[TaskError(exception_class_path=error.exception_class, traceback=error.traceback)]
        if error
        else [],
        finished_at=settled.finished_at,
        task=task_at(ending.lease.task),
    )


def _tell_failed(job: Lease | Spent, kind: Kind | None) -> None:
    named = {"job_id": job.job_id, "generation": job.generation, "task": job.task, "queue": job.queue}
    tell(job_failed, Job, **named, kind=kind)


def _log_untold(job: Lease | Spent) -> None:
    logger.exception(
        "The end of job %s could not be announced", job.job_id, extra=about("announcement_failed", job)
    )

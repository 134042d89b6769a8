"""One run of a job as small named steps. The only room that runs user code, and the only one that catches all."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import Context
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import Any

from django.utils.module_loading import import_string

from ...announcing import tell_started
from ...compat import Task, TaskResultStatus, is_task
from ...conf import Options
from ...context import JobContext
from ...context.fence import Block, completing
from ...exceptions import JobCancelled, JobCrashed, JobTimeout, LeaseLost, Snooze
from ...holding import Holding
from ...lease import Lease
from ...log import about, logger
from ...outcomes import Ending
from ...payloads import ErrorText, encode_result, render_exception
from ...results import result_of_lease
from ...retry import Backoff, RetryPolicy, next_delay
from ...states import Fencing, Kind
from ...tasks import PgTask


class Execution:
    """Runs jobs and says how each shall end. Shared by the threads of a pool; keeps no state of a job.

    `on_options` is called once the task's own options hold for a job.
    """

    def __init__(self, options: Options, *, on_options: Callable[[Holding], object]) -> None:
        self._options = options
        self._on_options = on_options
        self._tasks: dict[str, Task] = {}
        self._async: dict[str, bool] = {}

    def run(self, holding: Holding) -> Ending | None:
        """Run the job of a lease in a context of its own, and return its ending. Raises nothing.

        None if a fenced write of the job was refused: that refusal is on record, and there is nothing to end.

        Language, time zone and every context variable that the job sets end with the context.
        """
        return Context().run(self._run, holding)

    def _run(self, holding: Holding) -> Ending | None:
        try:
            task = self._begin(holding)
            return _done(holding, _call(task, holding))
        except BaseException as error:  # SystemExit and CancelledError end the job, not the worker
            return self._after(error, holding)

    def is_async(self, holding: Holding) -> bool:
        """Return whether the job's task is a coroutine function; not, if it cannot even be found."""
        known = self._async.get(holding.lease.task)
        if known is not None:
            return known
        try:
            found = iscoroutinefunction(self._resolve(holding.lease.task).func)
        except BaseException:  # whatever the module raises when imported: `run` meets and records it
            return False
        self._async[holding.lease.task] = found
        return found

    async def arun(self, holding: Holding) -> Ending | None:
        """Do as `run` for a coroutine function, on the running event loop."""
        try:
            task = self._begin(holding)
            return _done(holding, await _acall(task, holding))
        except BaseException as error:
            return self._after(error, holding)

    def _begin(self, holding: Holding) -> Task:
        task = self._resolve(holding.lease.task)
        self._heed(holding, task)
        tell_started(holding.lease, task)
        return task

    def _after(self, error: BaseException, holding: Holding) -> Ending | None:
        lease = holding.lease
        if holding.run.completed:  # accepted already: it ended under its own fence
            logger.warning("Job %s raised %s after it was completed", lease.job_id, type(error).__name__)
            return Ending.done(lease, holding.run.result)
        if isinstance(error, LeaseLost) and error.verdict and error.job_id == lease.job_id:
            return None  # refused and recorded
        if holding.fate.abandoned:
            return None  # timed out: its ending is already on its way
        return self._ending_of(error, holding)

    def timed_out(self, holding: Holding) -> Ending:
        """Return the ending of a job that has run for longer than its timeout."""
        error = JobTimeout(f"the job ran for longer than its timeout of {holding.run.timeout:g} s")
        return self._ending_of(error, holding)

    def crashed(self, holding: Holding, how: str) -> Ending:
        """Return the ending of a job whose process died; `how` is for its record."""
        return self._ending_of(JobCrashed(how), holding)

    def _resolve(self, path: str) -> Task:
        task = self._tasks.get(path)
        if task is None:
            try:
                found = import_string(path)
            except BaseException as error:
                error.add_note(f"This came up while importing the task {path}.")
                raise
            if not is_task(found):
                raise TypeError(f"{path} is a {type(found).__name__}, not a task; was @task removed?")
            task = self._tasks[path] = found
        return task

    def _heed(self, holding: Holding, task: Task) -> None:
        """Let the task's own options hold for this job; the next heartbeat writes the lease."""
        lease, run = holding.lease, holding.run
        duration, fencing, timeout = lease.duration, self._options.fencing, self._options.timeout
        if isinstance(task, PgTask):
            duration = task.lease or duration
            if task.fencing is not None and task.fencing in Fencing.values:
                fencing = Fencing(task.fencing)
            timeout = task.timeout or timeout
            run.retry, run.no_retry = task.retry, task.no_retry
        run.timeout = timeout.total_seconds() if timeout else None
        if (duration, fencing) != (lease.duration, lease.fencing):
            holding.lease = lease._replace(duration=duration, fencing=fencing)
        elif not (run.timeout or run.retry or run.no_retry):
            return
        self._on_options(holding)

    def _ending_of(self, error: BaseException, holding: Holding) -> Ending:
        lease = holding.lease
        if isinstance(error, Snooze) and isinstance(error.delay, timedelta):
            return Ending.snoozed(lease, error.delay)
        kind = Kind.ERROR
        if isinstance(error, JobCancelled):
            kind = Kind.CANCELLED
        elif isinstance(error, JobTimeout):
            kind = Kind.TIMEOUT
        elif isinstance(error, JobCrashed):
            kind = Kind.CRASHED
        delay = next_delay(
            attempt=lease.attempt,
            max_attempts=lease.max_attempts,
            exception=error,
            policy=self._policy(holding, kind),
            no_retry=holding.run.no_retry,
        )
        rendered = render_exception(error)
        _log_failure(lease, rendered, kind, delay, error)
        return Ending.failed(lease, rendered, delay, kind, error)

    def _policy(self, holding: Holding, kind: Kind) -> RetryPolicy:
        """Return what decides on a retry: after a timeout or a crash no function, for no thread of the job is left.

        The loop asks then, and a slow or broken function would hold up every other job.
        """
        policies = [policy for policy in (holding.run.retry, self._options.backoff) if policy is not None]
        if kind not in (Kind.TIMEOUT, Kind.CRASHED):
            return policies[0]
        return next((policy for policy in policies if isinstance(policy, Backoff)), Backoff())


def _log_failure(
    lease: Lease, text: ErrorText, kind: Kind, delay: timedelta | None, error: BaseException
) -> None:
    """Say which task failed and how, and what comes next; the arguments are never part of it."""
    if kind == Kind.CANCELLED:
        logger.info(
            "Job %s (%s): cancelled on request", lease.job_id, lease.task, extra=about("cancelled", lease)
        )
        return
    extra = about("attempt_failed", lease)
    what = f"{text.exception_class.removeprefix('builtins.')}: {text.message.partition(chr(10))[0][:200]}"
    told = (lease.job_id, lease.task, lease.attempt, lease.max_attempts, what)
    if delay is None:
        trace = error if kind == Kind.ERROR else None
        logger.error("Job %s (%s): attempt %s of %s failed, for good: %s", *told, exc_info=trace, extra=extra)
    else:
        seconds = delay.total_seconds()
        logger.warning(
            "Job %s (%s): attempt %s of %s failed: %s; again in %.1f s", *told, seconds, extra=extra
        )


def _done(holding: Holding, value: Any) -> Ending:
    return Ending.done(holding.lease, holding.run.result if holding.run.completed else encode_result(value))


def _arguments(task: Task, holding: Holding) -> tuple[list[Any], dict[str, Any]]:
    holding.run.started = time.monotonic()
    args, kwargs = holding.lease.arguments()
    if task.takes_context:
        result = result_of_lease(holding.lease, status=TaskResultStatus.RUNNING, task=task)
        args = [JobContext(task_result=result, holding=holding), *args]
    return args, kwargs


def _is_transactional(task: Task) -> bool:
    return isinstance(task, PgTask) and task.transactional


def _call(task: Task, holding: Holding) -> Any:
    args, kwargs = _arguments(task, holding)
    if not _is_transactional(task):
        return task.call(*args, **kwargs)
    # The whole body and the fenced completion are one transaction, which holds the job's row all the while.
    with completing(holding) as completion:
        completion.result = task.call(*args, **kwargs)
    return None


async def _acall(task: Task, holding: Holding) -> Any:
    args, kwargs = _arguments(task, holding)
    if not _is_transactional(task):
        return await task.func(*args, **kwargs)
    async with Block(lambda: completing(holding)) as completion:
        completion.result = await task.func(*args, **kwargs)
    return None

"""Tells receivers of signals that jobs have ended, on a thread of its own, so that none can hold up the loop."""

from __future__ import annotations

import json
import logging
import queue
from collections.abc import Callable
from dataclasses import dataclass

from django.db import close_old_connections

from ..compat import TaskError, TaskResultStatus, is_heard, task_finished
from ..connections import close_all
from ..log import logger
from ..models import Job
from ..outcomes import Ended
from ..results import result_of_lease, sender_of, task_at
from ..signals import job_failed, tell
from ..states import State


@dataclass(frozen=True, slots=True)
class _End:
    """The last thing in the queue."""


class Announcer:
    """Sends `task_finished` (and `job_failed`) for every job that has ended for good.

    With `hand_over`, somebody else does the sending: the child processes, where user code belongs.
    """

    def __init__(self, hand_over: Callable[[Ended], object] | None = None) -> None:
        self._hand_over = hand_over
        self._queue: queue.SimpleQueue[Ended | _End] = queue.SimpleQueue()

    def announce(self, ended: Ended) -> None:
        """Queue the announcement of an accepted ending, if anybody is there to hear it."""
        if ended.state == State.DONE:
            heard = is_heard(task_finished, logging.INFO)
        elif ended.state in (State.FAILED, State.CANCELLED):
            heard = is_heard(task_finished, logging.ERROR) or job_failed.has_listeners(Job)
        else:
            heard = False
        if heard and self._hand_over is not None:
            self._hand_over(ended)
        elif heard:
            self._queue.put(ended)

    def stop(self) -> None:
        """End the thread once everything queued has been announced."""
        self._queue.put(_End())

    def run(self) -> None:
        """Announce until stopped; the body of the thread."""
        try:
            while not isinstance(item := self._queue.get(), _End):
                self.send(item)
                close_old_connections()
        finally:
            close_all()

    def send(self, ended: Ended) -> None:
        """Send the signals of one ending. Raises nothing."""
        try:
            self._tell(ended)
        except BaseException:  # whatever a task's module or its backend's settings do: the worker goes on
            logger.exception(
                "The end of job %s could not be announced",
                ended.ending.lease.job_id,
                extra={"event": "announcement_failed", "job_id": ended.ending.lease.job_id},
            )

    def _tell(self, ended: Ended) -> None:
        ending = ended.ending
        lease = ending.lease
        done = ended.state == State.DONE
        errors = (
            [TaskError(exception_class_path=ending.error.exception_class, traceback=ending.error.traceback)]
            if ending.error
            else []
        )
        result = result_of_lease(
            lease,
            status=TaskResultStatus.SUCCESSFUL if done else TaskResultStatus.FAILED,
            value=json.loads(ending.result) if ending.result is not None else None,
            errors=errors,
            finished_at=ended.finished_at,
            task=task_at(lease.task),
        )
        sender = sender_of(lease.backend)
        try:
            if ending.cause is not None:
                raise ending.cause
        except BaseException:  # django.tasks sends its signal where sys.exc_info() is the job's exception
            tell(task_finished, sender, task_result=result)
        else:
            tell(task_finished, sender, task_result=result)
        if ended.state == State.FAILED:
            tell(
                job_failed,
                Job,
                job_id=lease.job_id,
                generation=lease.generation,
                task=lease.task,
                queue=lease.queue,
                kind=ending.kind,
            )

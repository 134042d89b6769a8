"""Expired jobs with nothing left to try end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ..compat import is_heard, task_finished
from ..log import logger
from ..models import Job
from ..outcomes import Spent, exhaust
from ..results import result_of, sender_of
from ..signals import job_failed, tell
from ..states import Kind, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhaust:
    """Ends spent jobs in batches and tells who listens; `held` gives the keys of what this process runs itself."""

    using: str
    held: Callable[[], Collection[tuple[int, int]]] = tuple

    def run_once(self) -> int:
        """End one batch; return how many jobs ended."""
        spent = exhaust(held=self.held(), using=self.using)
        for job in spent:
            logger.warning(
                "Job %s: its lease expired and it is now %s",
                job.job_id,
                job.state,
                extra={
                    "event": "exhausted",
                    "job_id": job.job_id,
                    "generation": job.generation,
                    "task": job.task,
                    "queue": job.queue,
                },
            )
            if job.state == State.FAILED:
                tell(
                    job_failed,
                    Job,
                    job_id=job.job_id,
                    generation=job.generation,
                    task=job.task,
                    queue=job.queue,
                    kind=Kind.LEASE_EXPIRED,
                )
            if is_heard(task_finished, logging.ERROR):
                try:
                    self._announce(job)
                except BaseException:  # a row that cannot be read, a module that raises: upkeep goes on
                    logger.exception(
                        "The end of job %s could not be announced",
                        job.job_id,
                        extra={"event": "announcement_failed", "job_id": job.job_id},
                    )
        return len(spent)

    def _announce(self, spent: Spent) -> None:
        """Send `task_finished`, as for any other end; the job may be pruned or retried in the meantime."""
        job = Job.objects.using(self.using).filter(pk=spent.job_id, state=spent.state).first()
        if job is not None:
            result = result_of(job, job.failures.order_by("pk"))
            tell(task_finished, sender_of(spent.backend), task_result=result)

"""What this package raises."""

from __future__ import annotations

from datetime import timedelta


class LeaseLost(Exception):
    """The job has moved on: this worker no longer owns it, and its write was refused."""

    def __init__(self, job_id: int, generation: int, verdict: str = "") -> None:
        self.job_id = job_id
        self.generation = generation
        self.verdict = verdict
        reason = f" ({verdict})" if verdict else ""
        super().__init__(f"generation {generation} no longer owns job {job_id}{reason}")


class JobCancelled(Exception):
    """Somebody asked for this running job to be cancelled."""

    def __init__(self, job_id: int) -> None:
        self.job_id = job_id
        super().__init__(f"cancellation of job {job_id} was requested")


class InvalidPayload(ValueError):
    """A value that JSON or PostgreSQL cannot hold; the message names where it stands."""


class DoNotRetry(Exception):
    """Raised by a task to fail its job at once, whatever attempts are left."""


class Snooze(Exception):
    """Raised by a task to run again after `delay` without using up an attempt."""

    def __init__(self, delay: timedelta) -> None:
        self.delay = delay
        super().__init__(f"run again in {delay}")


class JobTimeout(Exception):
    """Raised inside a job that has run for longer than its timeout."""


class JobCrashed(Exception):
    """Recorded for a job whose process died under it."""


class ForeignWrite(RuntimeError):
    """A write to another database inside a fenced block, which the fence could not guard."""

"""What a running job knows of its own lease."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass

from .compat import TaskContext
from .exceptions import JobCancelled, LeaseLost
from .leases import Lease

_KEYS = uuid.UUID("5f0f2c34-5a43-4b7e-9d0f-0a8c3f3f6d11")


class Holding:
    """A lease in this process and what is known of it, shared by the threads of a worker.

    `deadline` is on the monotonic clock, counted from before the last successful renewal was sent: after it
    the lease may have expired. Only the database decides whether it was really lost.
    """

    __slots__ = ("cancel_requested", "deadline", "ended", "lease", "lost", "started", "stopping")

    def __init__(self, lease: Lease, *, sent_at: float, stopping: threading.Event) -> None:
        self.lease = lease
        self.deadline = sent_at + lease.duration.total_seconds()
        self.lost = False
        self.cancel_requested = False
        self.started: float | None = None
        self.ended = False
        self.stopping = stopping

    def renewed(self, *, sent_at: float) -> None:
        """Note a renewal that was sent at `sent_at` (monotonic seconds)."""
        self.deadline = sent_at + self.lease.duration.total_seconds()
        self.lost = False

    @property
    def may_be_lost(self) -> bool:
        """Whether the lease was lost, or no renewal has succeeded for its whole duration."""
        return self.lost or time.monotonic() > self.deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext(TaskContext):  # type: ignore[misc]
    """The first argument of a task with `takes_context=True`."""

    holding: Holding

    @property
    def job_id(self) -> int:
        """The job's id."""
        return self.holding.lease.job_id

    @property
    def generation(self) -> int:
        """The fencing number of this claim: higher for every later claim of the job."""
        return self.holding.lease.generation

    @property
    def attempt(self) -> int:
        """Which run this is, 1 for the first; a run that was given back does not count."""
        return self.holding.lease.attempt

    @property
    def idempotency_key(self) -> str:
        """A key for outside receivers, the same on every attempt: derived from the job, never from the attempt.

        It contains the time of the enqueue, so that an id that is used again after a restore gets another key.
        """
        lease = self.holding.lease
        return str(uuid.uuid5(_KEYS, f"{lease.task} {lease.job_id} {lease.enqueued_at.timestamp():.6f}"))

    @property
    def lease_lost(self) -> bool:
        """Whether the worker knows, or must assume, that it no longer owns the job."""
        return self.holding.may_be_lost

    @property
    def should_stop(self) -> bool:
        """Whether the worker is shutting down, so that a long job may tidy up and `Snooze`."""
        return self.holding.stopping.is_set()

    def check(self) -> None:
        """Raise LeaseLost or JobCancelled as soon as the worker knows; for long jobs, between steps."""
        if self.holding.may_be_lost:
            raise LeaseLost(self.job_id, self.generation)
        if self.holding.cancel_requested:
            raise JobCancelled(self.job_id)

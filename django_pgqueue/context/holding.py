"""A lease as the threads of one worker share it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ..leases import Lease
from ..retry import RetryPolicy


class Holding:
    """A lease in this process and what is known of it.

    `deadline` is on the monotonic clock, counted from before the last successful renewal was sent: after it
    the lease may have expired. Only the database decides whether it was really lost.
    `closing` is set while the job itself ends its lease, `committing` once the block of its own is through,
    `completed` once that is committed, with `result` as JSON text; then `on_completed` is called. `timeout` is in
    seconds from `started`; `abandoned` once it has run out.
    `retry` and `no_retry` are the task's own, known once its code was found; None is the backend's policy.
    """

    __slots__ = (
        "abandoned",
        "cancel_requested",
        "closing",
        "committing",
        "completed",
        "deadline",
        "ended",
        "held_since",
        "lease",
        "lost",
        "no_retry",
        "on_completed",
        "result",
        "retry",
        "started",
        "stopping",
        "timeout",
        "using",
    )

    def __init__(self, lease: Lease, *, sent_at: float, stopping: threading.Event, using: str) -> None:
        self.lease = lease
        self.using = using
        self.held_since = sent_at
        self.deadline = sent_at + lease.duration.total_seconds()
        self.lost = False
        self.cancel_requested = False
        self.started: float | None = None
        self.timeout: float | None = None
        self.abandoned = False
        self.ended = False
        self.closing = False
        self.committing = False
        self.on_completed: Callable[[Holding], object] | None = None
        self.completed = False
        self.result: str | None = None
        self.retry: RetryPolicy | None = None
        self.no_retry: tuple[type[BaseException], ...] = ()
        self.stopping = stopping

    def renewed(self, *, sent_at: float) -> None:
        """Note a renewal that was sent at `sent_at` (monotonic seconds)."""
        self.deadline = sent_at + self.lease.duration.total_seconds()
        self.lost = False

    @property
    def may_be_lost(self) -> bool:
        """Whether the lease was lost, or no renewal has succeeded for its whole duration."""
        return self.lost or time.monotonic() > self.deadline

    @property
    def is_overdue(self) -> bool:
        """Whether the job has run for longer than its timeout."""
        return (
            self.started is not None
            and self.timeout is not None
            and not (self.ended or self.committing or self.completed)
            and time.monotonic() - self.started > self.timeout
        )

    @property
    def is_over(self) -> bool:
        """Whether an ending of this lease is decided or under way: a refused renewal then means nothing."""
        return self.ended or self.closing or self.completed

"""A lease as the threads of one worker share it, in parts: each has one kind of writer, so that none needs a lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .lease import Lease
from .retry import RetryPolicy


class Trust:
    """What is known of the lease. Written by the heartbeat (in a child process by the thread that hears the parent).

    `deadline` is on the monotonic clock, counted from before the last successful renewal was sent: after it
    the lease may have expired. Only the database decides whether it was really lost.
    """

    __slots__ = ("cancel_requested", "deadline", "lost")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline  # read by the job's thread, and by the one that tells a child
        self.lost = False  # read by the same; also set by the job's thread, whose own write was refused
        self.cancel_requested = False  # read by the same


class Run:
    """What its attempt has come to. Written by the job's thread (in a parent process by the one that hears children).

    `timeout` is in seconds from `started`. `closing` is set while the job itself ends its lease, `committing` once the
    block of its own is through, `completed` once that is committed, with `result` as JSON text. `retry` and `no_retry`
    are the task's own, known once its code was found; None is the backend's policy.
    """

    __slots__ = ("closing", "committing", "completed", "no_retry", "result", "retry", "started", "timeout")

    def __init__(self) -> None:
        self.started: float | None = None  # read by the loop, for the time limit
        self.timeout: float | None = None  # read by the loop
        self.closing = False  # read by the heartbeat
        self.committing = False  # read by the loop: a time limit comes too late from then on
        self.completed = False  # read by the loop and the heartbeat
        self.result: str | None = None  # read after `completed`
        self.retry: RetryPolicy | None = None  # read by whoever ends the attempt
        self.no_retry: tuple[type[BaseException], ...] = ()  # read by the same


class Fate:
    """What was decided of it. Written by the loop; `ended` by whoever ends it first, as the registry says."""

    __slots__ = ("abandoned", "ended")

    def __init__(self) -> None:
        self.abandoned = False  # its time has run out; read by the job's thread
        self.ended = False  # an ending is on its way; read by the loop and the heartbeat


class Holding:
    """A lease in this process and what is known of it.

    `lease` is replaced by the job's thread once the task's own duration and fencing are known, and read by all.
    `on_completed` is called once the job has ended its own lease.
    """

    __slots__ = ("fate", "held_since", "lease", "on_completed", "run", "stopping", "trust", "using")

    def __init__(self, lease: Lease, *, sent_at: float, stopping: threading.Event, using: str) -> None:
        self.lease = lease
        self.using = using
        self.held_since = sent_at
        self.stopping = stopping
        self.on_completed: Callable[[Holding], object] | None = None
        self.trust = Trust(sent_at + lease.duration.total_seconds())
        self.run = Run()
        self.fate = Fate()

    def renewed(self, *, sent_at: float) -> None:
        """Note a renewal that was sent at `sent_at` (monotonic seconds); for the heartbeat."""
        self.trust.deadline = sent_at + self.lease.duration.total_seconds()
        self.trust.lost = False

    @property
    def may_be_lost(self) -> bool:
        """Whether the lease was lost, or no renewal has succeeded for its whole duration."""
        return self.trust.lost or time.monotonic() > self.trust.deadline

    @property
    def is_overdue(self) -> bool:
        """Whether the job has run for longer than its timeout."""
        run = self.run
        return (
            run.timeout is not None
            and run.started is not None
            and not (self.fate.ended or run.committing or run.completed)
            and time.monotonic() - run.started > run.timeout
        )

    @property
    def is_over(self) -> bool:
        """Whether an ending of this lease is decided or under way: a refused renewal then means nothing."""
        return self.fate.ended or self.run.closing or self.run.completed

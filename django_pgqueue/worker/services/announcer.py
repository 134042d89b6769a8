"""Tells receivers of signals that jobs have ended, on a thread of its own, so that none can hold up the loop."""

from __future__ import annotations

import queue
from collections.abc import Callable

from django.db import close_old_connections

from ...announcing import is_end_heard, tell_settled
from ...outcomes import Settled
from ..service import Service


class Announcer:
    """Sends `task_finished` (and `job_failed`) for every job that has ended for good.

    With `hand_over`, somebody else does the sending: the child processes, where user code belongs.
    """

    def __init__(self, hand_over: Callable[[Settled], object] | None = None) -> None:
        self.service = Service("announcer")
        self._hand_over = hand_over
        self._queue: queue.SimpleQueue[Settled | None] = queue.SimpleQueue()  # None is the last

    def announce(self, settled: Settled) -> None:
        """Queue the announcement of an accepted ending, if anybody is there to hear it."""
        if is_end_heard(settled.state):
            (self._hand_over or self._queue.put)(settled)

    def stop(self) -> None:
        """End the thread once everything queued has been announced."""
        self._queue.put(None)

    def run(self) -> None:
        """Announce until stopped; the body of the thread."""
        with self.service.session():
            while (settled := self._queue.get()) is not None:
                tell_settled(settled)
                close_old_connections()

"""Which queues a claim asks for."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence

from ..leases import START, Lease, Position

CACHE_SECONDS = 1.0
HINT_SECONDS = 1.0
HINT_CLAIMS = 50


class Selection:
    """The worker's queues, rotated from claim to claim, so that a full queue cannot starve another.

    Without names given, they are those of all queues that have ready jobs, looked up at most once a second
    while jobs are being found, and before every idle poll; but the first claim after a hint asks the queues that
    had jobs last, without waiting for a look-up. Never two of them in turn, or hints could hide a queue.
    """

    def __init__(
        self,
        names: Sequence[str] | None,
        excluded: frozenset[str],
        *,
        look_up: Callable[[], list[str]],
    ) -> None:
        self._fixed = names is not None
        self._excluded = excluded
        self._look_up = look_up
        self._queues = deque(name for name in names or () if name not in excluded)
        self._known_until = 0.0
        self._last: list[str] = []
        self._hinted = False
        self._went_ahead = False
        self._after: dict[str, Position] = {}
        self._after_until = 0.0
        self._claims_left = 0

    def hint(self) -> None:
        """Take note that there may be jobs where there were none."""
        self._hinted = True

    def queues(self) -> list[str]:
        """Return the names for the next claim, another one first each time."""
        hinted, self._hinted = self._hinted, False
        if not self._fixed and time.monotonic() >= self._known_until:
            if hinted and self._last and not self._went_ahead:
                self._went_ahead = True
                return self._last
            self._went_ahead = False
            last = self._queues[0] if self._queues else ""
            names = sorted(name for name in self._look_up() if name not in self._excluded)
            turn = bisect_right(names, last)  # the new list goes on where the old one was
            self._queues = deque(names[turn:] + names[:turn])
            self._known_until = time.monotonic() + CACHE_SECONDS
        else:
            self._queues.rotate(-1)
        return list(self._queues)

    def after(self) -> dict[str, Position]:
        """Return the position of the last job claimed from each queue: nothing before it is worth a look.

        Only for a while: jobs with a better priority, retries and released jobs stand before it.
        """
        if time.monotonic() >= self._after_until or self._claims_left <= 0:
            self._after = {}
            self._after_until = time.monotonic() + HINT_SECONDS
            self._claims_left = HINT_CLAIMS
        self._claims_left -= 1
        return self._after

    def claimed(self, leases: Sequence[Lease], asked: int) -> None:
        """Note what a claim came back with; less than asked for means to look everywhere the next time."""
        if leases and not self._fixed:
            self._last = list({lease.queue: None for lease in leases})
        if len(leases) < asked:
            self._known_until = 0.0
            self._after_until = 0.0
            return
        for lease in leases:
            if lease.position > self._after.get(lease.queue, START):
                self._after[lease.queue] = lease.position

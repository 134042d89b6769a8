"""Which queues a claim asks for."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

CACHE_SECONDS = 1.0


class Selection:
    """The worker's queues, rotated from claim to claim, so that a full queue cannot starve another.

    Without names given, they are those of all queues that have ready jobs, looked up at most once a second
    while jobs are being found, and before every idle poll.
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

    def queues(self) -> list[str]:
        """Return the names for the next claim, another one first each time."""
        if not self._fixed and time.monotonic() >= self._known_until:
            self._queues = deque(name for name in self._look_up() if name not in self._excluded)
            self._known_until = time.monotonic() + CACHE_SECONDS
        self._queues.rotate(-1)
        return list(self._queues)

    def came_back_short(self) -> None:
        """Note that a claim found less than it asked for: other queues may have jobs by now."""
        self._known_until = 0.0

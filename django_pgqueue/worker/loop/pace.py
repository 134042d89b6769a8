"""How long the loop waits between two cycles."""

from __future__ import annotations

import random

SHORTEST_SECONDS = 0.005
LONGEST_WITH_TIMEOUTS = 0.25
LONGEST_WITH_LOCKED_ROWS = 0.25


class Pace:
    """Polls again at once after work or a wake-up, then less and less often, up to the interval."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._seconds = SHORTEST_SECONDS

    @property
    def seconds(self) -> float:
        """How long to wait now, with jitter, so that several workers do not poll in step."""
        return self._seconds * random.uniform(0.9, 1.1)

    def quicken(self) -> None:
        """Poll fast for a while: there was work, or somebody says that there is."""
        self._seconds = SHORTEST_SECONDS

    def slow(self, *limits: float | None) -> None:
        """Wait twice as long as before, at most the interval and each of the limits given."""
        longest = min([self._interval, *(limit for limit in limits if limit is not None)])
        self._seconds = min(self._seconds * 2, longest)

    def rest(self, seconds: float) -> None:
        """Wait so long, whatever was before: the database is away."""
        self._seconds = seconds

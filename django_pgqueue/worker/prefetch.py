"""How many jobs to claim beyond the free slots."""

from __future__ import annotations

# The pool is kept supplied for this long, which is many times what a claim takes.
AHEAD_SECONDS = 0.05
MOST = 100
# A claimed job that has waited this long for a slot is given back, for another worker to run.
LONGEST_WAIT_SECONDS = 0.5


class Prefetch:
    """Sizes the prefetch by the measured duration of jobs: many for jobs of a millisecond, none for long ones."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._mean: float | None = None
        self._stalled = False

    def note(self, jobs: int, seconds: float) -> None:
        """Take note of `jobs` that have ended since the last call, after `seconds` of running in all."""
        if not jobs:
            return
        mean = seconds / jobs
        share = min(jobs / 20, 0.5)
        self._mean = mean if self._mean is None else self._mean + (mean - self._mean) * share
        self._stalled = False

    def stall(self) -> None:
        """Stop claiming ahead until another job has ended: jobs had to be given back."""
        self._stalled = True

    @property
    def size(self) -> int:
        """How many jobs may wait for a slot."""
        if self._mean is None or self._stalled:
            return 0
        if self._mean * MOST <= AHEAD_SECONDS * self._slots:
            return MOST
        return int(self._slots * AHEAD_SECONDS / self._mean)

"""How many jobs to claim beyond the free slots."""

from __future__ import annotations

# The pool is kept supplied for this long, which is many times what a claim takes.
AHEAD_SECONDS = 0.05
MOST = 200
# A claimed job that has waited this long for a slot is given back, for another worker to run.
LONGEST_WAIT_SECONDS = 0.5


class Prefetch:
    """Sizes the prefetch by the measured duration of jobs: many for jobs of a millisecond, none for long ones.

    It grows by one for each job that has ended, so that a few short jobs do not make it reach for many long ones.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._mean: float | None = None
        self._ceiling = 0

    def note(self, jobs: int, seconds: float) -> None:
        """Take note of `jobs` that have ended since the last call, after `seconds` of running in all."""
        if not jobs:
            return
        mean = seconds / jobs
        share = min(jobs / 20, 0.5)
        self._mean = mean if self._mean is None else self._mean + (mean - self._mean) * share
        self._ceiling = min(self._ceiling + jobs, MOST)

    def stall(self) -> None:
        """Start again from nothing: jobs had to be given back."""
        self._ceiling = 0

    @property
    def size(self) -> int:
        """How many jobs may wait for a slot."""
        if self._mean is None:
            return 0
        if self._mean * self._ceiling <= AHEAD_SECONDS * self._slots:
            return self._ceiling
        return int(self._slots * AHEAD_SECONDS / self._mean)

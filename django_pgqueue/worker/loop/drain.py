"""The end of a worker: what it waits for, until when, and what it gives back."""

from __future__ import annotations

import time

from ...log import about, logger
from ...outcomes import Ending
from ..running.pool import Pool
from .registry import Registry

# How long rows that somebody has locked are asked to be given back, after the shutdown timeout.
LAST_TRY_SECONDS = 1.0


class Drain:
    """Waits for running jobs until the shutdown timeout, then gives back what is left. Begins with the first look."""

    def __init__(self, shutdown_timeout: float, *, registry: Registry, pool: Pool) -> None:
        self._shutdown_timeout = shutdown_timeout
        self._registry = registry
        self._pool = pool
        self._give_up_at: float | None = None
        self._leave_at: float | None = None

    def is_over(self, *, during_outage: bool) -> bool:
        """Whether everything is given back; with the database away, or rows locked, the leases tell of the rest."""
        if self._give_up_at is None:
            self._give_up_at = time.monotonic() + self._shutdown_timeout
        is_late = self._leave_at is not None and time.monotonic() > self._leave_at
        return len(self._registry) == 0 or is_late or (during_outage and self._is_time_up)

    def give_back(self) -> int:
        """Do as `give_back_unstarted`; after the shutdown timeout release also what is still running."""
        unstarted = self.give_back_unstarted()
        if self._is_time_up:
            self._give_up()
        return unstarted

    def give_back_unstarted(self) -> int:
        """Release what has not begun; return how many jobs that were."""
        unstarted = self._pool.take_unstarted()
        for holding in unstarted:
            self._registry.end(holding, Ending.released(holding.lease))
        return len(unstarted)

    def seconds_left(self, least: float) -> float | None:
        """Return for how long the loop may wait, at least `least`; None while it does not drain."""
        if self._give_up_at is None or self._leave_at is not None:
            return None
        return max(self._give_up_at - time.monotonic(), least)

    def _give_up(self) -> None:
        for holding in self._registry.holdings():
            lease = holding.lease
            if self._registry.end(holding, Ending.released(lease)):
                logger.warning(
                    "Job %s (%s): still running at the shutdown timeout; given back",
                    lease.job_id,
                    lease.task,
                    extra=about("given_back", lease),
                )
        if self._leave_at is None:
            self._leave_at = time.monotonic() + LAST_TRY_SECONDS

    @property
    def _is_time_up(self) -> bool:
        return self._give_up_at is not None and time.monotonic() >= self._give_up_at

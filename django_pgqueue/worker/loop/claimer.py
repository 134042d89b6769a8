"""Takes jobs for the loop: expired ones at a low rate, ready ones, and its own of which the reply was lost."""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from ...lease import START, Lease, Position
from ...leases import claim, orphans, ready_queues, reclaim
from ...log import about, logger
from ..settings import WorkerSettings
from .registry import Registry

CACHE_SECONDS = 1.0
HINT_SECONDS = 1.0
HINT_CLAIMS = 50


class Claimer:
    """Claims under this worker's id. Used by the loop only, on the loop's connection."""

    def __init__(self, settings: WorkerSettings, registry: Registry) -> None:
        self._settings = settings
        self._registry = registry
        self._selection = Selection(settings.queues, settings.excluded, using=settings.using)
        self._reclaim_at = 0.0

    def hint(self) -> None:
        """Take note that there may be jobs where there were none; for any thread."""
        self._selection.hint()

    def claim(self, free: int) -> list[Lease]:
        """Claim up to `free` jobs, in the caller's transaction: first expired ones, if it is time for them."""
        leases = self._reclaim(free)
        return leases + self._claim(free - len(leases))

    def orphans(self) -> list[Lease]:
        """Return claims that went through although their reply was lost: this worker's, and not held by it."""
        found = orphans(
            worker=self._settings.id,
            known=frozenset(self._registry.keys()),
            lease=self._settings.lease,
            using=self._settings.using,
        )
        for lease in found:
            logger.warning(
                "Job %s: its claim had gone through although the reply was lost",
                lease.job_id,
                extra=about("claim_recovered", lease),
            )
        return found

    def _reclaim(self, free: int) -> list[Lease]:
        if free <= 0 or time.monotonic() < self._reclaim_at:
            return []
        self._reclaim_at = time.monotonic() + self._settings.reclaim_seconds * random.uniform(0.8, 1.2)
        taken = reclaim(
            worker=self._settings.id,
            queues=self._settings.queues,
            excluded=sorted(self._settings.excluded),
            held=self._registry.keys(),
            limit=free,
            lease=self._settings.lease,
            using=self._settings.using,
        )
        for lease in taken:
            logger.warning(
                "Job %s (%s): reclaimed as generation %s; the lease of worker %s had expired",
                lease.job_id,
                lease.task,
                lease.generation,
                lease.worker_ids[-2] if len(lease.worker_ids) > 1 else "?",
                extra=about("reclaimed", lease),
            )
        return taken

    def _claim(self, free: int) -> list[Lease]:
        if free <= 0:
            return []
        leases: list[Lease] = []
        queues = self._selection.queues()
        if queues:
            leases = claim(
                worker=self._settings.id,
                queues=queues,
                limit=free,
                lease=self._settings.lease,
                after=self._selection.after(),
                using=self._settings.using,
            )
        self._selection.claimed(leases, free)
        return leases


class Selection:
    """The worker's queues, rotated from claim to claim, so that a full queue cannot starve another.

    Without names given, they are those of all queues that have ready jobs, looked up at most once a second
    while jobs are being found, and before every idle poll; but the first claim after a hint asks the queues that
    had jobs last, without waiting for a look-up. Never two of them in turn, or hints could hide a queue.
    """

    def __init__(self, names: Sequence[str] | None, excluded: frozenset[str], *, using: str) -> None:
        self._fixed = names is not None
        self._excluded = excluded
        self._using = using
        self._queues = deque(name for name in names or () if name not in excluded)
        self._known_until = 0.0
        self._last: list[str] = []
        self._hinted = False  # written by any thread, read by the loop
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
            names = sorted(name for name in ready_queues(using=self._using) if name not in self._excluded)
            first = bisect_right(names, last)  # the new list goes on where the old one was
            self._queues = deque(names[first:] + names[:first])
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

"""Takes jobs for the loop: expired ones at a low rate, ready ones, and its own of which the reply was lost."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from ..leases import Lease, Position, claim, orphans, reclaim
from ..log import logger
from .settings import WorkerSettings

SLOWEST_RECLAIM_SECONDS = 3.0


class Queues(Protocol):
    """Which queues a claim asks for, and from which positions on."""

    def queues(self) -> list[str]:
        """Return the names for the next claim."""
        ...

    def after(self) -> dict[str, Position]:
        """Return the positions before which nothing is worth a look."""
        ...

    def claimed(self, leases: Sequence[Lease], asked: int) -> None:
        """Note what a claim came back with."""
        ...


class Claimer:
    """Claims under this worker's id. Used by the loop only, on the loop's connection."""

    def __init__(
        self, settings: WorkerSettings, *, queues: Queues, held: Callable[[], Collection[tuple[int, int]]]
    ) -> None:
        self._settings = settings
        self._queues = queues
        self._held = held
        self._reclaim_at = 0.0

    def take(self, room: int) -> list[Lease]:
        """Claim up to `room` jobs, in the caller's transaction: first expired ones, if it is their turn."""
        leases = self._reclaim(room)
        return leases + self._claim(room - len(leases))

    def orphans(self) -> list[Lease]:
        """Return claims that went through although their reply was lost: this worker's, and not held by it."""
        found = orphans(
            worker=self._settings.id,
            known=frozenset(self._held()),
            lease=self._settings.lease,
            using=self._settings.using,
        )
        for lease in found:
            logger.warning(
                "Job %s: its claim had gone through although the reply was lost",
                lease.job_id,
                extra={"event": "claim_recovered", "job_id": lease.job_id, "generation": lease.generation},
            )
        return found

    def _reclaim(self, room: int) -> list[Lease]:
        if room <= 0 or time.monotonic() < self._reclaim_at:
            return []
        seconds = min(self._settings.lease.total_seconds() / 4, SLOWEST_RECLAIM_SECONDS)
        self._reclaim_at = time.monotonic() + seconds * random.uniform(0.8, 1.2)
        taken = reclaim(
            worker=self._settings.id,
            queues=self._settings.queues,
            excluded=sorted(self._settings.excluded),
            held=self._held(),
            limit=room,
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
                extra={
                    "event": "reclaimed",
                    "job_id": lease.job_id,
                    "generation": lease.generation,
                    "task": lease.task,
                    "queue": lease.queue,
                    "worker": lease.worker,
                },
            )
        return taken

    def _claim(self, room: int) -> list[Lease]:
        if room <= 0:
            return []
        leases: list[Lease] = []
        queues = self._queues.queues()
        if queues:
            leases = claim(
                worker=self._settings.id,
                queues=queues,
                limit=room,
                lease=self._settings.lease,
                after=self._queues.after(),
                using=self._settings.using,
            )
        self._queues.claimed(leases, room)
        return leases

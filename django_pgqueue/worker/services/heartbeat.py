"""Renews the leases of this process, on a thread and a connection of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from django.db import DatabaseError, InterfaceError, connections

from ...faults import first_line
from ...holding import Holding
from ...leases import push
from ...log import about, logger
from ...models import Job, Worker
from ...rejections import record
from ...signals import lease_lost, tell
from ...sql import workers
from ...states import State
from ...verdicts import Refused
from ..service import Service

LONGEST_RETRY_SECONDS = 2.0


class Heartbeat:
    """Pushes ahead exactly the leases in the registry, and learns from the reply which are lost.

    A failed round means "unknown", not "lost": it is tried again on a new connection, soon. Until when the
    worker may believe in a lease is the holding's own monotonic deadline.
    """

    def __init__(
        self,
        *,
        using: str,
        name: str,
        beat_seconds: float,
        holdings: Callable[[], list[Holding]],
        row: Callable[[], dict[str, Any]],
    ) -> None:
        self.service = Service("heartbeat", name=name, using=using)
        self._using = using
        self._beat_seconds = beat_seconds
        self._holdings = holdings
        self._row = row

    def nudge(self) -> None:
        """Beat now: a job has a lease of its own."""
        self.service.woken.set()

    def stop(self) -> None:
        """End the thread after the round it is in."""
        self.service.stop()

    def run(self) -> None:
        """Beat until stopped; the body of the thread."""
        with self.service.session():
            while not self.service.stopping:
                if (error := self.service.attempt(self._beat)) is not None:
                    self.service.warn("heartbeat_failed", "Heartbeat failed (%s); trying again", error)
                self.service.wait(self._pause())
            self._sign_off()

    def _beat(self) -> None:
        held = {
            holding.lease.key: holding
            for holding in self._holdings()
            if not (holding.trust.lost or holding.run.completed)
        }
        sent_at = time.monotonic()
        reply = push([holding.lease for holding in held.values()], using=self._using)
        for key in reply.renewed | reply.busy:
            held[key].renewed(sent_at=sent_at)
        for key in reply.cancel_requested:
            held[key].trust.cancel_requested = True
        lost = [item for item in reply.lost if not _has_ended(held[item.key], item)]
        record(lost, using=self._using)
        for item in lost:
            self._lose(held[item.key])
        with connections[self._using].cursor() as cursor:
            cursor.execute(workers.SEEN, self._row())

    def _lose(self, holding: Holding) -> None:
        holding.trust.lost = True
        lease = holding.lease
        logger.warning(
            "Job %s: generation %s has lost its lease",
            lease.job_id,
            lease.generation,
            extra=about("lease_lost", lease),
        )
        tell(lease_lost, Job, job_id=lease.job_id, generation=lease.generation, worker=lease.worker)

    def _sign_off(self) -> None:
        try:
            Worker.objects.using(self._using).filter(pk=self._row()["id"]).delete()
        except (DatabaseError, InterfaceError) as error:  # the row is for people only
            logger.info("The worker's row could not be deleted: %s", first_line(error))

    def _pause(self) -> float:
        if self.service.failures:
            return self.service.retry_in(min(LONGEST_RETRY_SECONDS, self._beat_seconds))
        shortest = (holding.lease.duration.total_seconds() / 3 for holding in self._holdings())
        return min([self._beat_seconds, *shortest])


def _has_ended(holding: Holding, refused: Refused) -> bool:
    """Whether the job is not lost but over: its ending went through, or is on its way and will be judged itself."""
    seen = refused.observed
    done_by_us = seen is not None and seen.generation == holding.lease.generation and seen.state == State.DONE
    return holding.is_over or done_by_us

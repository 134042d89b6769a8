"""Renews the leases of this process, on a thread and a connection of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from django.db import DatabaseError, InterfaceError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from .. import sql
from ..connections import adopt, close_all, discard
from ..context import Holding
from ..leases import push
from ..log import logger
from ..models import Job, Worker
from ..rejections import Refused, record
from ..signals import lease_lost, tell
from ..states import State

RETRY_SECONDS = 0.2
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
        self._using = using
        self._name = name
        self._beat_seconds = beat_seconds
        self._holdings = holdings
        self._row = row
        self._wake = threading.Event()
        self._stopping = False
        self._failures = 0
        self.busy_since: float | None = None
        self.connection: BaseDatabaseWrapper | None = None

    def nudge(self) -> None:
        """Beat now: a job has a lease of its own."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread after the round it is in."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        """Beat until stopped; the body of the thread."""
        self.connection = adopt(self._using, name=self._name)
        try:
            while not self._stopping:
                self._round()
                self._wake.wait(self._pause())
                self._wake.clear()
            self._sign_off()
        finally:
            close_all()

    def _round(self) -> None:
        self.busy_since = time.monotonic()
        try:
            self._beat()
            self._failures = 0
        except (DatabaseError, InterfaceError) as error:
            self._failures += 1
            if self._failures in (1, 10, 100, 1000):
                logger.warning(
                    "Heartbeat failed (%s); trying again", _line(error), extra={"event": "heartbeat_failed"}
                )
            discard(self._using)
            self.connection = connections[self._using]
        finally:
            self.busy_since = None

    def _beat(self) -> None:
        held = {
            holding.lease.key: holding
            for holding in self._holdings()
            if not (holding.lost or holding.completed)
        }
        sent_at = time.monotonic()
        reply = push([holding.lease for holding in held.values()], using=self._using)
        for key in reply.renewed | reply.busy:
            held[key].renewed(sent_at=sent_at)
        for key in reply.cancel_requested:
            held[key].cancel_requested = True
        lost = [item for item in reply.lost if not _has_ended(held[item.job_id, item.generation], item)]
        record(lost, using=self._using)
        for item in lost:
            self._lose(held[item.job_id, item.generation])
        with connections[self._using].cursor() as cursor:
            cursor.execute(sql.SEEN, self._row())

    def _lose(self, holding: Holding) -> None:
        holding.lost = True
        lease = holding.lease
        logger.warning(
            "Job %s: generation %s has lost its lease",
            lease.job_id,
            lease.generation,
            extra={
                "event": "lease_lost",
                "job_id": lease.job_id,
                "generation": lease.generation,
                "task": lease.task,
                "queue": lease.queue,
                "worker": lease.worker,
            },
        )
        tell(lease_lost, Job, job_id=lease.job_id, generation=lease.generation, worker=lease.worker)

    def _sign_off(self) -> None:
        try:
            Worker.objects.using(self._using).filter(pk=self._row()["id"]).delete()
        except (DatabaseError, InterfaceError) as error:  # the row is for people only
            logger.info("The worker's row could not be deleted: %s", _line(error))

    def _pause(self) -> float:
        if self._failures:
            return float(min(RETRY_SECONDS * self._failures, LONGEST_RETRY_SECONDS, self._beat_seconds))
        shortest = (holding.lease.duration.total_seconds() / 3 for holding in self._holdings())
        return min([self._beat_seconds, *shortest])


def _has_ended(holding: Holding, refused: Refused) -> bool:
    """Whether the job is not lost but over: its ending went through, or is on its way and will be judged itself."""
    seen = refused.observed
    done_by_us = seen is not None and seen.generation == holding.lease.generation and seen.state == State.DONE
    return holding.is_over or done_by_us


def _line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:200]

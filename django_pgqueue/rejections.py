"""The ledger of refused writes: what the row says now, which verdict that makes, and the record of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connections, router

from . import sql
from .conf import configured_database
from .connections import apart, is_outage
from .log import logger
from .models import Job, Rejection
from .signals import completion_rejected, tell
from .states import Action, Kind, State, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A job's row as it was when a write was refused, by the database's clock.

    `failed_as` is the kind of the failure that its present generation left, None if it left none.
    """

    job_id: int
    generation: int
    state: str
    lease_until: datetime | None
    last_attempted_at: datetime | None
    finished_at: datetime | None
    now: datetime
    failed_as: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """One refused write and its verdict."""

    job_id: int
    generation: int
    action: Action
    worker: str
    verdict: Verdict
    observed: Observed | None

    @property
    def state_left(self) -> str | None:
        """The state that this generation left the job in, if the row still shows it."""
        seen = self.observed
        return seen.state if seen is not None and seen.generation == self.generation else None

    @property
    def late_by(self) -> timedelta | None:
        """How long after the loss the write came; None where the row does not tell."""
        seen = self.observed
        if seen is None:
            return None
        lost_at = {
            Verdict.SUPERSEDED: seen.last_attempted_at,
            Verdict.EXPIRED: seen.lease_until,
            Verdict.NOT_RUNNING: seen.finished_at,
        }.get(self.verdict)
        return None if lost_at is None else max(seen.now - lost_at, timedelta(0))


def queue_database(using: str | None = None) -> str:
    """Return the alias of the queue's database: `using`, the DATABASE option, or what the routers say for jobs."""
    return using or configured_database() or router.db_for_write(Job)


def observe(keys: Collection[tuple[int, int]], *, using: str) -> dict[tuple[int, int], Observed]:
    """Return what the rows of these leases, (job id, generation), say now; one without a row is left out."""
    given = {"ids": [job_id for job_id, _ in keys], "generations": [generation for _, generation in keys]}
    with connections[using].cursor() as cursor:
        cursor.execute(sql.OBSERVE, given)
        rows = cursor.fetchall()
    return {
        (row[0], row[1]): Observed(
            job_id=row[0],
            generation=row[2],
            state=row[3],
            lease_until=row[4],
            last_attempted_at=row[5],
            finished_at=row[6],
            now=row[7],
            failed_as=row[8],
        )
        for row in rows
    }


def judge(observed: Observed | None, *, generation: int, action: Action, strict: bool) -> Verdict | None:
    """Return the verdict on a write that changed no row; None if the writer still owns the job (it was locked).

    `already_accepted` needs that this same generation has ended the job that same way: then the reply to an
    earlier commit was lost. A job that ended because the lease ran out was ended by nobody's write.
    """
    if observed is None:
        return Verdict.MISSING
    has_failed = observed.failed_as not in (None, Kind.LEASE_EXPIRED)
    if observed.generation > generation:
        # Its own failure is on record, or it left none, not even for a lease that ran out, and so it gave the
        # job back: another attempt has begun since, as it should.
        went_through = {Action.FAIL: has_failed, Action.RELEASE: observed.failed_as is None}.get(
            action, False
        )
        return Verdict.ALREADY_ACCEPTED if went_through else Verdict.SUPERSEDED
    if observed.generation < generation:
        return Verdict.NOT_RUNNING  # this claim was never committed
    if observed.state == State.RUNNING:
        expired = observed.lease_until is not None and observed.lease_until <= observed.now
        return Verdict.EXPIRED if strict and expired else None
    given_back = observed.state in (State.READY, State.SCHEDULED, State.CANCELLED)
    repeated = {
        Action.COMPLETE: observed.state == State.DONE,
        Action.FAIL: has_failed and observed.state != State.DONE,
        Action.RELEASE: observed.failed_as is None and given_back,
    }.get(action, False)
    return Verdict.ALREADY_ACCEPTED if repeated else Verdict.NOT_RUNNING


def record(refused: Sequence[Refused], *, using: str) -> None:
    """Keep refused writes as rows, in a transaction of their own, and tell who listens.

    Raises only if the database is away. A ledger that refuses its rows (a trigger, a full table) is logged as an
    error, and changes nothing for the job or its worker.
    """
    if not refused:
        return
    rows = [
        Rejection(
            job_id=item.job_id,
            generation=item.generation,
            current_generation=item.observed.generation if item.observed else None,
            seen_lease_until=item.observed.lease_until if item.observed else None,
            seen_state=item.observed.state if item.observed else "",
            late_by=item.late_by,
            action=item.action,
            verdict=item.verdict,
            worker=item.worker,
        )
        for item in refused
    ]
    try:
        with apart(using):
            Rejection.objects.using(using).bulk_create(rows)
    except Exception as error:
        if is_outage(error):
            raise
        logger.error("Refused writes could not be recorded", exc_info=True, extra={"event": "unrecorded"})
    for item in refused:
        if item.action != Action.RENEW:  # the heartbeat tells of a lost lease by itself
            _tell(item)


def _tell(item: Refused) -> None:
    current = item.observed.generation if item.observed else None
    logger.warning(
        "Job %s: %s by generation %s was refused (%s; the job is at generation %s)",
        item.job_id,
        item.action,
        item.generation,
        item.verdict,
        current,
        extra={
            "event": "rejected",
            "job_id": item.job_id,
            "generation": item.generation,
            "worker": item.worker,
        },
    )
    tell(
        completion_rejected,
        Rejection,
        job_id=item.job_id,
        generation=item.generation,
        current_generation=current,
        action=item.action,
        verdict=item.verdict,
        worker=item.worker,
        late_by=item.late_by,
    )

"""What the row says of a write that changed nothing, and which verdict that makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import connections

from .lease import Key, Lease, columns
from .sql import ending
from .states import Action, Kind, State, Verdict


class Observed(NamedTuple):
    """A job's row as it was when a write was refused, by the database's clock.

    `failed_as` is the kind of the failure that the writer's generation left, None if it left none.
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
    def key(self) -> Key:
        """The lease whose write it was."""
        return self.job_id, self.generation

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


def sort_out(leases: Sequence[Lease], action: Action, *, using: str) -> list[Refused | None]:
    """Say of each lease whose write changed nothing how it was refused; None if it still owns its job."""
    if not leases:
        return []
    seen = observe(leases, using=using)
    return [_judged(lease, action, seen.get(lease.key)) for lease in leases]


def observe(leases: Sequence[Lease], *, using: str) -> dict[Key, Observed]:
    """Return what the rows of these leases say now, by their keys; one without a row is left out."""
    with connections[using].cursor() as cursor:
        cursor.execute(ending.OBSERVE, columns(leases))
        rows = cursor.fetchall()
    return {(row[0], row[1]): Observed(row[0], *row[2:]) for row in rows}


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


def _judged(lease: Lease, action: Action, row: Observed | None) -> Refused | None:
    verdict = judge(row, generation=lease.generation, action=action, strict=lease.is_strict)
    if verdict is None:
        return None
    return Refused(
        job_id=lease.job_id,
        generation=lease.generation,
        action=action,
        worker=lease.worker,
        verdict=verdict,
        observed=row,
    )

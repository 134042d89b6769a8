"""How a lease is claimed, reclaimed and renewed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

from django.db import connections, transaction
from psycopg.sql import Literal

from .bounds import LEASE
from .database import queue_database
from .lease import NOWHERE, START, Key, Lease, Position, columns, left_alone
from .models import Job
from .rejections import record
from .sql import claiming
from .states import Action, Fencing
from .verdicts import Refused, sort_out

NO_QUEUES: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """What a heartbeat learned, as lease keys: renewed (and of these, which shall stop), busy, or lost.

    A busy job is still under its lease, but its row is locked, by its own fence or by somebody else.
    """

    renewed: frozenset[Key] = frozenset()
    cancel_requested: frozenset[Key] = frozenset()
    busy: frozenset[Key] = frozenset()
    lost: tuple[Refused, ...] = ()


def claim(
    *,
    worker: str,
    queues: Sequence[str] | None = None,
    limit: int = 1,
    lease: timedelta = LEASE.default,
    after: Mapping[str, Position] = NOWHERE,
    using: str | None = None,
) -> list[Lease]:
    """Claim up to `limit` ready jobs of `queues` (None: of every queue), in the order of the queues given.

    Each claimed job gets the next generation and a lease of `lease` from the database's clock. Rows that
    another session has locked are skipped, so the order is that of the candidates, not a global FIFO.
    Returned best priority first, then by id. `after` is a hint for one that claims again and again: per
    queue the position of the last claimed job, before which nothing is looked for.
    """
    using = queue_database(using)
    with transaction.atomic(using=using, savepoint=False):
        if queues is None:
            queues = ready_queues(using=using)
        if not queues or limit < 1:
            return []
        positions = [after.get(queue, START) for queue in queues]
        given = {
            "queues": list(queues),
            "after_priorities": [position[0] for position in positions],
            "after_ids": [position[1] for position in positions],
            "limit": limit,
            "lease": lease,
            "worker": worker,
        }
        leases = _leases(_claim_statement(using), given, worker, lease, using)
    return sorted(leases, key=lambda item: (-item.priority, item.job_id))


def reclaim(
    *,
    worker: str,
    queues: Sequence[str] | None = None,
    excluded: Sequence[str] = NO_QUEUES,
    held: Collection[Key] = (),
    limit: int = 1,
    lease: timedelta = LEASE.default,
    using: str | None = None,
) -> list[Lease]:
    """Claim up to `limit` jobs whose lease has expired and that have attempts left, oldest first.

    The keys in `held` are left alone: the caller runs them itself and may still renew them. The lost attempt
    is recorded as a failure of kind `lease_expired` in the same statement.
    """
    if limit < 1:
        return []
    using = queue_database(using)
    given = {
        "queues": None if queues is None else list(queues),
        "excluded": list(excluded),
        **left_alone(held),
        "limit": limit,
        "lease": lease,
        "worker": worker,
    }
    return sorted(_leases(claiming.RECLAIM, given, worker, lease, using), key=lambda item: item.job_id)


def orphans(*, worker: str, known: Collection[Key], lease: timedelta, using: str) -> list[Lease]:
    """Return the leases that this worker holds in the table and whose keys are not among the known ones.

    They are claims whose commit succeeded and whose reply was lost. The worker's id is unique to one run of
    one process, so they are nobody else's; (id, generation) alone could not tell. Only the loop that
    claims may call this, and only between claims.
    """
    held = _leases(claiming.ORPHANS, {"worker": worker}, worker, lease, using)
    return [item for item in held if item.key not in known]


def ready_queues(*, using: str) -> list[str]:
    """Return the names of the queues that have ready jobs; the cost is per queue, not per job."""
    with connections[using].cursor() as cursor:
        cursor.execute(claiming.READY_QUEUES)
        return [row[0] for row in cursor.fetchall()]


def renew(leases: Sequence[Lease], *, using: str | None = None) -> Renewal:
    """Push these leases ahead by their own duration, in one statement that waits for nobody.

    Only a generation that still owns its job is renewed; under strict fencing an expired lease is not.
    Lost ones are recorded as rejections.
    """
    using = queue_database(using)
    renewal = push(leases, using=using)
    record(renewal.lost, using=using)
    return renewal


def push(leases: Sequence[Lease], *, using: str) -> Renewal:
    """Do as `renew`, and leave it to the caller which of the lost ones were really refused."""
    asked = sorted(leases, key=lambda lease: lease.job_id)
    if not asked:
        return Renewal()
    with connections[using].cursor() as cursor:
        cursor.execute(
            claiming.RENEW,
            {
                **columns(asked),
                "leases": [lease.duration for lease in asked],
                "stricts": [lease.is_strict for lease in asked],
            },
        )
        rows = cursor.fetchall()
    renewed = frozenset((row[0], row[1]) for row in rows)
    missing = [lease for lease in asked if lease.key not in renewed]
    judged = sort_out(missing, Action.RENEW, using=using)
    return Renewal(
        renewed=renewed,
        cancel_requested=frozenset((row[0], row[1]) for row in rows if row[2]),
        busy=frozenset(lease.key for lease, reply in zip(missing, judged, strict=True) if reply is None),
        lost=tuple(reply for reply in judged if reply),
    )


@lru_cache
def _claim_statement(using: str) -> str:
    """Compile the candidates with the alias's compiler and embed them in the claim.

    The ORM's parameters become literals: a kept plan can use a partial index only if it sees the state's name.
    """
    # The ORM locks rows only where a transaction is certain.
    with transaction.atomic(using=using, savepoint=False):
        query = Job.objects.using(using).candidates().query
        text, values = query.get_compiler(using=using).as_sql()
    candidates = text % tuple(Literal(value).as_string() for value in values)
    return claiming.CLAIM.format(candidates=candidates)


def _leases(
    statement: str, given: dict[str, Any], worker: str, duration: timedelta, using: str
) -> list[Lease]:
    with connections[using].cursor() as cursor:
        cursor.execute(statement, given)
        rows = cursor.fetchall()
    return [Lease._make(row + (worker, duration, Fencing.TOKEN)) for row in rows]

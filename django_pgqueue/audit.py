"""The queue's invariants as read-only statements that can run on production.

Each names what must hold and selects the ids that break it. They scan the table: run them off-peak where it
is large. A job that a worker ends at this moment cannot show up: one snapshot sees all of it or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from django.db import connections, transaction
from django.db.backends.utils import CursorWrapper

from .database import queue_database

MOST_IDS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """What must hold, and a statement that selects the ids of rows for which it does not."""

    name: str
    text: str
    statement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The reply for one invariant: the offending ids, at most MOST_IDS, smallest first."""

    invariant: Invariant
    ids: list[int] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether no row breaks the invariant."""
        return not self.ids


_JOBS = "SELECT j.id FROM django_pgqueue_job AS j WHERE"

INVARIANTS = (
    Invariant(
        name="running-has-lease",
        text="A job has a lease exactly while it is running",
        statement=f"{_JOBS} (j.state = 'running') <> (j.lease_until IS NOT NULL)",
    ),
    Invariant(
        name="generation-counts-claims",
        text="The generation is the number of claims, each with its worker",
        statement=f"{_JOBS} j.generation <> cardinality(j.worker_ids)",
    ),
    Invariant(
        name="attempts-within-generation",
        text="No job has been attempted more often than it was claimed",
        statement=f"{_JOBS} j.attempts > j.generation",
    ),
    Invariant(
        name="waiting-has-attempts-left",
        text="No waiting job has spent its attempts",
        statement=f"{_JOBS} j.state IN ('ready', 'scheduled') AND j.attempts >= j.max_attempts",
    ),
    Invariant(
        name="ended-was-claimed",
        text="No job is done or failed that was never claimed",
        statement=f"{_JOBS} j.state IN ('done', 'failed') AND (j.generation = 0 OR j.started_at IS NULL)",
    ),
    Invariant(
        name="ended-has-end",
        text="A job has an end exactly when it is done, failed or cancelled",
        statement=f"{_JOBS} (j.state IN ('done', 'failed', 'cancelled')) <> (j.finished_at IS NOT NULL)",
    ),
    Invariant(
        name="expired-is-recovered",
        text="No lease has been expired for more than an hour",
        statement=f"{_JOBS} j.state = 'running' AND j.lease_until < statement_timestamp() - interval '1 hour'",
    ),
    Invariant(
        name="unique-keys",
        text="No two live jobs hold the same unique key",
        statement=f"""{_JOBS} j.unique_key IS NOT NULL AND j.state IN ('scheduled', 'ready', 'running')
            AND EXISTS (SELECT FROM django_pgqueue_job AS o WHERE o.unique_key = j.unique_key AND o.id <> j.id
                        AND o.state IN ('scheduled', 'ready', 'running'))""",
    ),
    Invariant(
        name="one-ending-per-generation",
        text="No generation ended more than once",
        statement="""
            SELECT f.job_id AS id FROM django_pgqueue_failure AS f
            JOIN django_pgqueue_job AS j ON j.id = f.job_id
            WHERE j.state = 'done' AND f.generation = j.generation
            UNION
            SELECT job_id FROM django_pgqueue_failure GROUP BY job_id, generation HAVING count(*) > 1""",
    ),
    Invariant(
        name="failures-of-claims",
        text="No failure belongs to a claim that was not made",
        statement="""
            SELECT f.job_id AS id FROM django_pgqueue_failure AS f
            LEFT JOIN django_pgqueue_job AS j ON j.id = f.job_id
            WHERE j.id IS NULL OR f.generation > j.generation OR f.generation < 1""",
    ),
    Invariant(
        name="effects-of-claims",
        text="No saved effect belongs to a claim that was not made",
        statement="""
            SELECT e.job_id AS id FROM django_pgqueue_effect AS e
            LEFT JOIN django_pgqueue_job AS j ON j.id = e.job_id
            WHERE j.id IS NULL OR e.generation > j.generation OR e.generation < 1""",
    ),
    Invariant(
        name="superseded-by-newer",
        text="Every superseded write met a newer generation, and none came from a claim that was not made",
        statement="""
            SELECT r.job_id AS id FROM django_pgqueue_rejection AS r
            LEFT JOIN django_pgqueue_job AS j ON j.id = r.job_id
            WHERE (r.verdict = 'superseded' AND r.current_generation <= r.generation)
               OR r.verdict IN ('accepted', 'already_accepted')
               OR j.generation < r.current_generation""",
    ),
)


def audit(*, using: str | None = None) -> list[Finding]:
    """Check every invariant in one read-only snapshot of the queue's database."""
    using = queue_database(using)
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        if not connections[using].savepoint_ids:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return [_check(cursor, invariant) for invariant in INVARIANTS]


def _check(cursor: CursorWrapper, invariant: Invariant) -> Finding:
    cursor.execute(
        f"SELECT DISTINCT id FROM ({invariant.statement}) AS offending ORDER BY id LIMIT {MOST_IDS}"
    )
    return Finding(invariant=invariant, ids=[row[0] for row in cursor.fetchall()])

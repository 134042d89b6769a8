"""What must hold after every fault: the audit's invariants, and those that need the lab's own history and effects."""

from __future__ import annotations

from datetime import timedelta

from ..audit import INVARIANTS, Invariant
from .session import Session
from .stage import Stage
from .waiting import Unreached, until

MOST_IDS = 20
SETTLE_WITHIN = timedelta(seconds=10)

# DESIGN: every transition that the rules allow, (from, to, generation's step).
ALLOWED = """
    ('scheduled', 'ready', 0), ('ready', 'running', 1), ('running', 'running', 1), ('running', 'failed', 0),
    ('running', 'done', 0), ('running', 'scheduled', 0), ('running', 'ready', 0), ('ready', 'cancelled', 0),
    ('scheduled', 'cancelled', 0), ('running', 'cancelled', 0), ('failed', 'ready', 0), ('cancelled', 'ready', 0),
    ('done', 'ready', 0)
"""

OF_THE_LAB = (
    Invariant(
        name="allowed-changes",
        text="Every change of a job is one that the rules allow, and generations only rise",
        statement=f"""SELECT job_id AS id FROM lab_history
            WHERE (was, state, generation - was_generation) NOT IN ({ALLOWED})""",
    ),
    Invariant(
        name="one-accepted-ending",
        text="At most one ending was accepted per job and generation",
        statement="""SELECT job_id AS id FROM lab_history WHERE was = 'running' AND state <> 'running'
            GROUP BY job_id, generation HAVING count(*) > 1""",
    ),
    Invariant(
        name="one-accepted-completion",
        text="At most one completion was accepted per job",
        statement="""SELECT job_id AS id FROM lab_history WHERE state = 'done'
            GROUP BY job_id HAVING count(*) > 1""",
    ),
    Invariant(
        name="fenced-by-owner",
        text="Fenced effects were written by the owner only",
        statement="""SELECT job_id AS id FROM lab_effects
            WHERE kind <> 'plain' AND generation IS DISTINCT FROM owner""",
    ),
    Invariant(
        name="transactional-exactly-once",
        text="Transactional effects happened exactly once for each completed job, and for no other",
        statement="""SELECT j.id FROM django_pgqueue_job AS j LEFT JOIN lab_effects AS e
            ON e.job_id = j.id AND e.kind IN ('transactional', 'completing')
            WHERE j.task LIKE '%.transactional' OR j.task LIKE '%.fenced'
            GROUP BY j.id, j.state HAVING count(e.n) <> (j.state = 'done')::int""",
    ),
    Invariant(
        name="owner-not-refused",
        text="No refused completion came from the generation that completed the job",
        statement="""SELECT r.job_id AS id FROM django_pgqueue_rejection AS r
            JOIN django_pgqueue_job AS j ON j.id = r.job_id
            WHERE r.action = 'complete' AND j.state = 'done' AND r.generation = j.generation""",
    ),
)

_UNSETTLED = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'pgqueue %%'
      AND state IS DISTINCT FROM 'idle' AND backend_type = 'client backend'
"""


def check(stage: Stage, *, ended: bool = True) -> None:
    """Assert all of them, and that no session is left in a transaction; with `ended` also that every job has ended."""
    facts = stage.facts
    for invariant in (*INVARIANTS, *OF_THE_LAB):
        broken = _offending(facts, invariant)
        stage.check(
            f"{invariant.name}: {invariant.text}",
            not broken,
            {"ids": broken[:MOST_IDS], "count": len(broken)},
        )
    if ended:
        live = facts.value(
            "SELECT count(*) FROM django_pgqueue_job WHERE state IN ('scheduled', 'ready', 'running')"
        )
        stage.check("every job has ended", live == 0, live)
    try:
        until(lambda: facts.value(_UNSETTLED) == 0, "sessions settle", within=SETTLE_WITHIN)
        settled = True
    except Unreached:
        settled = False
    stage.check(
        "sessions and transactions are back to normal",
        settled,
        None
        if settled
        else facts.quietly(
            "SELECT application_name, state, wait_event, query FROM pg_stat_activity"
            " WHERE datname = current_database() AND state <> 'idle' AND pid <> pg_backend_pid()"
        ),
    )


def _offending(facts: Session, invariant: Invariant) -> list[int]:
    return [row[0] for row in facts.raw.execute(invariant.statement).fetchall()]

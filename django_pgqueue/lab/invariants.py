"""What must hold after every fault, read from the job rows, the effects and the history the server itself kept."""

from __future__ import annotations

from .stage import Stage
from .waiting import Unreached, until

# DESIGN: every transition that the rules allow, (from, to, generation's step).
ALLOWED = """
    ('scheduled', 'ready', 0), ('ready', 'running', 1), ('running', 'running', 1), ('running', 'failed', 0),
    ('running', 'done', 0), ('running', 'scheduled', 0), ('running', 'ready', 0), ('ready', 'cancelled', 0),
    ('scheduled', 'cancelled', 0), ('running', 'cancelled', 0), ('failed', 'ready', 0), ('cancelled', 'ready', 0),
    ('done', 'ready', 0)
"""

# (what holds, a statement that returns the ids for which it does not)
_RULES = (
    (
        "nothing is lost: every job is in a known state, and running exactly if it has a lease",
        "SELECT id FROM django_pgqueue_job WHERE state NOT IN ('scheduled', 'ready', 'running', 'done', 'failed',"
        " 'cancelled') OR (state = 'running') <> (lease_until IS NOT NULL)",
    ),
    (
        "every change of a job is one that the rules allow, and generations only rise",
        f"SELECT job_id FROM lab_history WHERE (was, state, generation - was_generation) NOT IN ({ALLOWED})",
    ),
    (
        "at most one accepted ending per job and generation",
        "SELECT job_id FROM lab_history WHERE was = 'running' AND state <> 'running'"
        " GROUP BY job_id, generation HAVING count(*) > 1",
    ),
    (
        "at most one accepted completion per job",
        "SELECT job_id FROM lab_history WHERE state = 'done' GROUP BY job_id HAVING count(*) > 1",
    ),
    (
        "every generation is a claim with a worker's name",
        "SELECT id FROM django_pgqueue_job WHERE generation <> cardinality(worker_ids)",
    ),
    (
        "fenced effects were written by the owner only",
        "SELECT job_id FROM lab_effects WHERE kind <> 'plain' AND generation IS DISTINCT FROM owner",
    ),
    (
        "transactional effects happened exactly once for each completed job, and for no other",
        "SELECT j.id FROM django_pgqueue_job AS j LEFT JOIN lab_effects AS e"
        " ON e.job_id = j.id AND e.kind IN ('transactional', 'completing')"
        " WHERE j.task LIKE '%.transactional' OR j.task LIKE '%.fenced'"
        " GROUP BY j.id, j.state HAVING count(e.n) <> (j.state = 'done')::int",
    ),
    (
        "a refused write never came from the generation that ended the job",
        "SELECT r.job_id FROM django_pgqueue_rejection AS r JOIN django_pgqueue_job AS j ON j.id = r.job_id"
        " WHERE r.action = 'complete' AND j.state = 'done' AND r.generation = j.generation",
    ),
)

_UNSETTLED = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'pgqueue %%'
      AND state IS DISTINCT FROM 'idle' AND backend_type = 'client backend'
"""


def check(stage: Stage, *, ended: bool = True) -> None:
    """Assert all of them; with `ended` also that every job has ended, and that no session is left in a transaction."""
    facts = stage.facts
    for text, statement in _RULES:
        broken = [row[0] for row in facts.quietly(statement)]
        stage.check(text, not broken, {"jobs": broken[:20], "count": len(broken)})
    if ended:
        live = facts.value(
            "SELECT count(*) FROM django_pgqueue_job WHERE state IN ('scheduled', 'ready', 'running')"
        )
        stage.check("every job has ended", live == 0, live)
    try:
        until(lambda: facts.value(_UNSETTLED) == 0, "sessions settle", within=10)
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

"""The planner's choice for the articles' combined claim against the package's, beside a long history."""

from __future__ import annotations

import json
from typing import Any

from django.db import connections

from ... import leases
from ..scenario import Scenarios
from ..session import Session
from ..stage import Stage
from ..target import ALIAS
from .article_sql import GENERATION_CLAIM, GENERATION_INDEXES, GENERATION_SCHEMA, set_up

scenarios = Scenarios("plans")

DONE = 200_000
BUDGET = 30


@scenarios.add(
    "claim-plan", f"Beside {DONE:,} finished jobs: the combined claim walks them, ours touches {BUDGET} pages"
)
def claim_plan(stage: Stage) -> None:
    session = stage.facts
    set_up(session, GENERATION_SCHEMA)
    payload = """'{"order_id": 42}'"""
    session.run(
        "INSERT INTO lab_article_job (state, generation, payload)"
        f" SELECT 'done', 1, {payload} FROM generate_series(1, {DONE})"
    )
    session.run(f"INSERT INTO lab_article_job (payload) SELECT {payload} FROM generate_series(1, 1000)")
    session.run(
        "INSERT INTO django_pgqueue_job (task, state, generation, worker_ids, finished_at, payload)"
        f" SELECT 'x', 'done', 1, '{{w}}', now(), {payload} FROM generate_series(1, {DONE})"
    )
    session.run(
        f"INSERT INTO django_pgqueue_job (task, payload) SELECT 'x', {payload} FROM generate_series(1, 1000)"
    )
    session.run("VACUUM (ANALYZE) lab_article_job")
    session.run("VACUUM (ANALYZE) django_pgqueue_job")
    combined, combined_nodes = _plan(stage, session, "the articles' combined claim", GENERATION_CLAIM)
    ours, our_nodes = _plan(stage, session, "the package's claim", _our_claim(session))
    stage.check(
        "the combined claim uses neither partial index",
        not GENERATION_INDEXES & set(combined_nodes),
        combined_nodes,
    )
    stage.check("the package's claim uses pgqueue_job_ready", "pgqueue_job_ready" in our_nodes, our_nodes)
    stage.check(f"it touches at most {BUDGET} buffers", ours <= BUDGET, ours)
    stage.check(
        "the combined claim touches more than 50 times as many", combined > 50 * ours, [combined, ours]
    )
    stage.check_value(
        "both plans were rolled back", "SELECT count(*) FROM lab_article_job WHERE state = 'running'", 0
    )


def _our_claim(session: Session) -> str:
    """Return the claim as the package sends it, by catching it on its way."""
    caught: list[str] = []

    def catch(execute: Any, statement: str, parameters: Any, many: bool, context: Any) -> Any:
        cursor = context["cursor"].cursor
        caught.append(_mogrified(cursor, statement, parameters))
        return execute(statement, parameters, many, context)

    with connections[ALIAS].execute_wrapper(catch):
        # No such queue: nothing is claimed, and only the statement's text is wanted.
        leases.claim(worker="worker-A", queues=["no such queue"], using=ALIAS)
    return caught[-1].replace("no such queue", "default")


def _mogrified(cursor: Any, statement: str, parameters: Any) -> str:
    import psycopg

    with psycopg.ClientCursor(cursor.connection) as client:
        return client.mogrify(statement, parameters)


def _plan(stage: Stage, session: Session, name: str, statement: str) -> tuple[int, list[str]]:
    session.quietly("BEGIN")
    text = f"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, FORMAT JSON) {statement}"
    stage.record.ask("facts", text)
    reply = session.quietly(text)
    session.quietly("ROLLBACK")
    plan = reply[0][0] if isinstance(reply[0][0], list) else json.loads(reply[0][0])
    top = plan[0]["Plan"]
    buffers = top["Shared Hit Blocks"] + top["Shared Read Blocks"]
    indexes = sorted(set(_indexes(top)))
    stage.record.statement("facts", text, {"indexes": indexes})
    stage.record.figure(f"{name}: buffers", buffers)
    stage.record.figure(f"{name}: milliseconds", plan[0]["Execution Time"])
    return buffers, indexes


def _indexes(node: dict[str, Any]) -> list[str]:
    found = [node["Index Name"]] if "Index Name" in node else []
    for child in node.get("Plans", []):
        found += _indexes(child)
    return found

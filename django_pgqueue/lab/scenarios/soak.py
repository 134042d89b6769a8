"""Minutes of random faults under load: `.ci/nightly` runs it, and `--only soak`."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from typing import Any

from .. import invariants
from ..chaos import STRUCK, Chaos
from ..scenario import Scenarios
from ..stage import TASKS, Stage
from ..waiting import pause

scenarios = Scenarios("soak")

# Task, share of the jobs, arguments.
MIX: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("plain", 25, {}),
    ("fenced", 30, {}),
    ("transactional", 30, {}),
    ("mail", 10, {"fail_first": True}),
    ("flaky", 5, {"failures": 2}),
)
LONGEST_JOB_SECONDS = 0.2
TICK_SECONDS = 0.1
DRAINS_WITHIN = timedelta(minutes=3)

ENQUEUE = """
    INSERT INTO django_pgqueue_job (task, payload, max_attempts)
    SELECT task, payload::jsonb, 1000 FROM unnest(%s::text[], %s::text[]) AS new (task, payload)
"""


@scenarios.add(
    "soak", "Minutes of random kills, stops, cuts, partitions and restarts, one each second", by_default=False
)
def soak(stage: Stage) -> None:
    seconds = float(os.environ.get("PGQUEUE_SOAK_SECONDS", "600"))
    jobs = int(os.environ.get("PGQUEUE_SOAK_JOBS", "20000"))
    stage.record.event("PGQUEUE_SOAK_SECONDS and PGQUEUE_SOAK_JOBS set its length and its load")
    chaos = Chaos(stage)
    began = time.monotonic()
    enqueued = _storm(stage, chaos, began, seconds, jobs)
    chaos.tidy(all_of_it=True)
    stage.record.note(f"after {time.monotonic() - began:.0f} s: no more faults; what is left is worked off")
    stage.until_all_ended(within=DRAINS_WITHIN)
    chaos.tidy()
    stage.record.figure("seconds", round(time.monotonic() - began, 1))
    stage.record.figure("faults", dict(chaos.struck))
    stage.stop_workers()
    chaos.tidy()
    _conclude(stage, enqueued, chaos)
    invariants.check(stage)


def _storm(stage: Stage, chaos: Chaos, began: float, seconds: float, jobs: int) -> int:
    """Enqueue evenly, and strike once a second; return how many jobs are in."""
    enqueued, strike_at, tell_at = 0, began + 1.0, began + 15.0
    while (elapsed := time.monotonic() - began) < seconds or enqueued < jobs:
        due = min(jobs, int(jobs * elapsed / (seconds * 0.95)) + 1)
        if due > enqueued:
            enqueued += _enqueue(stage, due - enqueued)
        if time.monotonic() >= strike_at:
            strike_at += 1.0
            chaos.strike()
        chaos.tidy()
        if time.monotonic() >= tell_at:
            tell_at += 15.0
            live = stage.facts.value("SELECT count(*) FROM django_pgqueue_job WHERE state <> 'done'")
            stage.record.note(
                f"{elapsed:6.0f} s: {enqueued} enqueued, {live} not done, {chaos.struck.total()} faults"
            )
        pause(TICK_SECONDS)
    return enqueued


def _enqueue(stage: Stage, count: int) -> int:
    """Insert a random mix; in doubt about the commit, count what is there."""
    chosen = stage.random.choices(MIX, [share for _, share, _ in MIX], k=count)
    payloads = []
    for task, _, arguments in chosen:
        timed = task in ("plain", "fenced", "transactional")
        seconds = {"seconds": round(stage.random.uniform(0, LONGEST_JOB_SECONDS), 3)} if timed else {}
        payloads.append(json.dumps({"args": [], "kwargs": {**arguments, **seconds}}))
    try:
        stage.facts.raw.execute(ENQUEUE, [[f"{TASKS}.{task}" for task, _, _ in chosen], payloads])
    except STRUCK:
        stage.facts.reconnect()
        return 0
    return count


def _conclude(stage: Stage, enqueued: int, chaos: Chaos) -> None:
    facts = stage.facts
    there = facts.value("SELECT count(*) FROM django_pgqueue_job")
    done = facts.value("SELECT count(*) FROM django_pgqueue_job WHERE state = 'done'")
    stage.check(
        "zero lost: every job whose enqueue was confirmed is there", there >= enqueued, [there, enqueued]
    )
    stage.check("every job is done", done == there, [done, there])
    stage.check(
        "every worker that was asked to stop ended with 0",
        set(chaos.exit_codes) <= {0},
        dict(chaos.exit_codes),
    )
    figures = {
        "jobs": "SELECT count(*) FROM django_pgqueue_job",
        "claims": "SELECT sum(generation)::bigint FROM django_pgqueue_job",
        "most claims of one job": "SELECT max(generation) FROM django_pgqueue_job",
        "double endings": "SELECT count(*) FROM (SELECT FROM lab_history WHERE was = 'running' AND state <> 'running'"
        " GROUP BY job_id, generation HAVING count(*) > 1) AS d",
        "transactional effects": "SELECT count(*) FROM lab_effects WHERE kind IN ('transactional', 'completing')",
        "double transactional effects": "SELECT count(*) FROM (SELECT FROM lab_effects"
        " WHERE kind IN ('transactional', 'completing') GROUP BY job_id HAVING count(*) > 1) AS d",
        "unfenced effects that happened more than once": "SELECT count(*) FROM (SELECT FROM lab_effects"
        " WHERE kind = 'plain' GROUP BY job_id HAVING count(*) > 1) AS d",
        "mails": "SELECT count(*) FROM lab_mails",
        "requests to the mail service": "SELECT sum(sent)::bigint FROM lab_mails",
        "refused writes": "SELECT jsonb_object_agg(what, n) FROM"
        " (SELECT action || ' ' || verdict AS what, count(*) AS n FROM django_pgqueue_rejection GROUP BY 1) AS r",
        "failed attempts": "SELECT jsonb_object_agg(kind, n) FROM (SELECT kind, count(*) AS n"
        " FROM django_pgqueue_failure GROUP BY 1) AS f",
    }
    for name, statement in figures.items():
        stage.record.figure(name, facts.value(statement))

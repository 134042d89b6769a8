"""A job that runs twice, and what each of heartbeat, fencing token and key puts right.

After "Your SKIP LOCKED Queue Can Run a Job Twice. Heartbeats and Fencing Tokens Make It Safe". Real processes run
`article_worker.py` on its own two tables; a gate stands for the time that a job takes.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from .. import article_worker
from ..processes import Process
from ..scenario import Scenarios
from ..stage import Stage
from .article_sql import ATTEMPT_SCHEMA, ONE_JOB, set_up

scenarios = Scenarios("articles")

EFFECTS = "SELECT job_id, attempt, worker FROM lab_article_effect ORDER BY attempt"


@scenarios.add(
    "double-run", "An unfenced worker whose lease expires in the middle of a job: two effects for one job"
)
def double_run(stage: Stage) -> None:
    _enqueue(stage)
    _start(stage, "A")
    _until(stage, 1, "render")
    _start(stage, "B")
    _until(stage, 2, "render", "the lease expires in the middle of the job, and B claims attempt 2")
    for attempt in (1, 2):
        _finish(stage, attempt)
    effects = stage.facts.run(EFFECTS)
    stage.check(
        "two side effects for one job: the double run happens", effects == [[1, 1, "A"], [1, 2, "B"]], effects
    )


@scenarios.add("heartbeat", "Fix 1: a heartbeat keeps the lease ahead of a slow job")
def heartbeat(stage: Stage) -> None:
    _enqueue(stage)
    _start(stage, "A", "--heartbeat")
    _until(stage, 1, "render")
    first_end = stage.facts.value("SELECT lease_until FROM lab_article_job WHERE id = 1")
    _start(stage, "B", "--heartbeat")
    stage.until_row(
        "the first lease is over, and B has asked for work since",
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'article B' AND query_start > %s)",
        first_end,
    )
    stage.check_value(
        "the lease was pushed ahead: still attempt 1", "SELECT attempt FROM lab_article_job WHERE id = 1", 1
    )
    _finish(stage, 1)
    effects = stage.facts.run(EFFECTS)
    stage.check("the slow job has finished once", effects == [[1, 1, "A"]], effects)


@scenarios.add(
    "heartbeat-is-not-enough", "Paused after its last check, a worker writes again: a heartbeat alone lets it"
)
def heartbeat_is_not_enough(stage: Stage) -> None:
    _paused_after_the_last_check(stage, "--heartbeat")
    effects = stage.facts.run(EFFECTS)
    stage.check(
        "two effects again: paused, replaced, thawed, written", effects == [[1, 1, "A"], [1, 2, "B"]], effects
    )


@scenarios.add(
    "fencing-token", "Fix 2: the token, checked in the effect's own transaction, refuses the paused worker"
)
def fencing_token(stage: Stage) -> None:
    _paused_after_the_last_check(stage, "--heartbeat", "--fence")
    effects = stage.facts.run(EFFECTS)
    stage.check("one effect, by the attempt that owns the job", effects == [[1, 2, "B"]], effects)
    mails = stage.facts.run("SELECT count(*) FROM lab_mails")
    stage.check(
        "but the mail, outside the transaction and keyed by the attempt, went out twice",
        mails == [[2]],
        mails,
    )


@scenarios.add(
    "idempotency-key",
    "Fix 3: a key derived from the job, not from the attempt, lets the receiver drop the double",
)
def idempotency_key(stage: Stage) -> None:
    _paused_after_the_last_check(stage, "--heartbeat", "--fence", "--key")
    mails = stage.facts.run("SELECT key, sent FROM lab_mails")
    stage.check(
        "two requests reached the mail service, one mail went out", mails == [["receipt-job-1", 2]], mails
    )
    effects = stage.facts.run(EFFECTS)
    stage.check("one effect in the database", effects == [[1, 2, "B"]], effects)


def _paused_after_the_last_check(stage: Stage, *flags: str) -> None:
    _enqueue(stage)
    paused = _start(stage, "A", *flags)
    _open(stage, "render 1")
    _until(stage, 1, "finish", "A has passed its last check of the lease, and is about to finish")
    paused.freeze()
    stage.record.event("SIGSTOP to A: no heartbeat goes out")
    _start(stage, "B", *flags)
    _until(stage, 2, "render", "the lease expires, and B claims attempt 2")
    _finish(stage, 2)
    _open(stage, "finish 1")
    paused.thaw()
    stage.record.event("SIGCONT to A: it goes on where it was")
    stage.until_row(
        "A has come to its end, whatever it wrote",
        "SELECT EXISTS (SELECT FROM lab_marks WHERE generation = 1 AND point IN ('finished', 'lost'))",
    )


def _enqueue(stage: Stage) -> None:
    set_up(stage.facts, ATTEMPT_SCHEMA)
    stage.facts.run(ONE_JOB)


def _start(stage: Stage, name: str, *flags: str) -> Process:
    script = Path(article_worker.__file__)
    env = {**os.environ, "PGQUEUE_LAB_DSN": json.dumps(dict(stage.target.params))}
    process = stage.process(name, [sys.executable, str(script), name, *flags], env=env)
    stage.record.event(
        f"article_worker.py {' '.join((name, *flags))}: lease {article_worker.LEASE_SECONDS:g} s"
    )
    return process


def _until(stage: Stage, attempt: int, point: str, what: str = "") -> None:
    stage.until_row(
        what or f"attempt {attempt} has reached {point!r}",
        "SELECT EXISTS (SELECT FROM lab_marks WHERE generation = %s AND point = %s)",
        *(attempt, point),
    )


def _open(stage: Stage, gate: str) -> None:
    stage.facts.quietly("INSERT INTO lab_gates VALUES (%s)", gate)


def _finish(stage: Stage, attempt: int) -> None:
    _open(stage, f"render {attempt}")
    _open(stage, f"finish {attempt}")
    _until(stage, attempt, "finished", f"attempt {attempt} has finished")

"""SKIP LOCKED, expiring leases, and the generation that refuses a stale worker, step by step on one small table.

After "PostgreSQL job queues with SKIP LOCKED and expiring leases".
"""

from __future__ import annotations

import threading
from typing import Any

from ..scenario import Scenarios
from ..session import Session
from ..stage import Stage
from .article_sql import EXPIRE, GENERATION_CLAIM, GENERATION_COMPLETE, GENERATION_SCHEMA, TWO_JOBS, set_up

scenarios = Scenarios("articles")


@scenarios.add("skip-locked", "A locked job is skipped, not waited for, and claimed once its lock is gone")
def skip_locked(stage: Stage) -> None:
    locker, claimer = _two_jobs(stage)
    locker.run("BEGIN")
    locker.run("SELECT id FROM lab_article_job WHERE id = 1 FOR UPDATE")
    stage.until_row(
        "the locker's transaction is open",
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = %s AND state = 'idle in transaction')",
        locker.application,
    )
    reply = claimer.run(GENERATION_CLAIM)
    stage.check("while job 1 is locked, the claim gets job 2 at generation 1", reply == [[2, 1]], reply)
    locker.run("ROLLBACK")
    reply = claimer.run(GENERATION_CLAIM)
    stage.check("after the rollback, the next claim gets job 1 at generation 1", reply == [[1, 1]], reply)


@scenarios.add("lease-and-reclaim", "An expired lease makes the job claimable again, at the next generation")
def lease_and_reclaim(stage: Stage) -> None:
    first, second = _two_jobs(stage)
    reply = first.run(GENERATION_CLAIM)
    stage.check("the first worker has job 1 at generation 1", reply == [[1, 1]], reply)
    second.run(GENERATION_CLAIM)
    reply = second.run(GENERATION_CLAIM)
    stage.check("while both leases hold, there is nothing to claim", reply == [], reply)
    first.run(EXPIRE, 1)
    reply = second.run(GENERATION_CLAIM)
    stage.check("after the expiry, the second worker has job 1 at generation 2", reply == [[1, 2]], reply)


@scenarios.add(
    "stale-completion", "The old generation's completion changes no row, the current one's changes one"
)
def stale_completion(stage: Stage) -> None:
    first, second = _two_jobs(stage)
    first.run(GENERATION_CLAIM)
    first.run(EXPIRE, 1)
    second.run(GENERATION_CLAIM)
    stale = first.run(GENERATION_COMPLETE, 1, 1)
    current = second.run(GENERATION_COMPLETE, 1, 2)
    stage.check("generation 1 changes 0 rows", stale == "UPDATE 0", stale)
    stage.check("generation 2 changes 1 row", current == "UPDATE 1", current)
    again = second.run(GENERATION_COMPLETE, 1, 2)
    stage.check("a completed job cannot be completed again", again == "UPDATE 0", again)


@scenarios.add(
    "rolled-back-claim", "A claim that is rolled back never was: same generation next, another owner"
)
def rolled_back_claim(stage: Stage) -> None:
    first, second = _two_jobs(stage)
    first.run("BEGIN")
    reply = first.run(GENERATION_CLAIM)
    stage.check(
        "inside its transaction, the first worker sees job 1 at generation 1", reply == [[1, 1]], reply
    )
    first.run("ROLLBACK")
    reply = second.run("SELECT state, generation, lease_until FROM lab_article_job WHERE id = 1")
    stage.check("for everybody else job 1 was ready all the while", reply == [["ready", 0, None]], reply)
    reply = second.run(GENERATION_CLAIM)
    stage.check(
        "the second worker gets the same number: (id, generation) cannot name a claim whose commit is uncertain",
        reply == [[1, 1]],
        reply,
    )


@scenarios.add("cancel-under-lock", "A cancelled statement, and its transaction's end, free the candidate")
def cancel_under_lock(stage: Stage) -> None:
    first, second = _two_jobs(stage)
    pid = first.value("SELECT pg_backend_pid()") if stage.place.pooled else first.raw.info.backend_pid
    first.run("BEGIN")
    if stage.place.pooled:  # the server session is only ours inside the transaction
        pid = first.value("SELECT pg_backend_pid()")
    first.run("SELECT id FROM lab_article_job WHERE id = 1 FOR UPDATE")
    replies: list[Any] = []
    sleeper = threading.Thread(
        target=lambda: replies.append(first.quietly("SELECT pg_sleep(30)")), daemon=True
    )
    sleeper.start()
    stage.until_row(
        "the first worker holds job 1 and is busy",
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep')",
        pid,
    )
    reply = second.run(GENERATION_CLAIM)
    stage.check("meanwhile a claim skips job 1", reply == [[2, 1]], reply)
    stage.facts.value("SELECT pg_cancel_backend(%s)", pid)
    sleeper.join(20)
    stage.check(
        "the statement was cancelled (SQLSTATE 57014)", replies == [{"error": "57014 QueryCanceled"}], replies
    )
    failed = first.run("SELECT 1")
    stage.check(
        "the transaction block is aborted, and takes nothing but its end",
        failed == {"error": "25P02 InFailedSqlTransaction"},
        failed,
    )
    first.run("ROLLBACK")
    reply = second.run(GENERATION_CLAIM)
    stage.check("after its end job 1 can be claimed, at generation 1", reply == [[1, 1]], reply)


def _two_jobs(stage: Stage) -> tuple[Session, Session]:
    """Make the table with two jobs; return two sessions."""
    first, second = stage.session("first"), stage.session("second")
    set_up(stage.facts, GENERATION_SCHEMA)
    stage.facts.run(TWO_JOBS)
    return first, second

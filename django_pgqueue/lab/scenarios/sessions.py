"""The server ends a worker's sessions, or refuses to write: nothing is lost, and the worker carries on."""

from __future__ import annotations

from datetime import timedelta

from .. import invariants
from ..scenario import Scenarios, Skip
from ..stage import LEASE_SECONDS, Stage
from ..waiting import pause

scenarios = Scenarios("sessions")

TERMINATE = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name LIKE %s"
)


@scenarios.add("terminate-all", "pg_terminate_backend on every session of two busy workers, again and again")
def terminate_all(stage: Stage) -> None:
    for task in ("plain", "fenced", "transactional"):
        stage.enqueue(task, 40, seconds=0.05)
    for letter in "AB":
        stage.worker(letter, concurrency=4)
    ended = 0
    for _ in range(8):
        ended += stage.facts.value(TERMINATE, "pgqueue worker-%")
        pause(0.2)
    stage.record.event("eight times: pg_terminate_backend on every session of the workers")
    stage.record.figure("sessions ended", ended)
    stage.until_all_ended(within=timedelta(minutes=1))
    stage.stop_workers()
    stage.check_value(
        "every job is done", "SELECT count(*) FROM django_pgqueue_job WHERE state = 'done'", 120
    )
    invariants.check(stage)


@scenarios.add(
    "terminate-heartbeat", "The heartbeat's session is ended for two leases: the job keeps its lease"
)
def terminate_heartbeat(stage: Stage) -> None:
    if stage.place.pooled:
        raise Skip("behind a pooler no server session is the heartbeat's own")
    stage.enqueue("plain", gate="go")
    stage.worker("A", lease=2 * LEASE_SECONDS)
    stage.until_reached(1)
    stage.worker("B", lease=2 * LEASE_SECONDS)
    ends = stage.facts.value("SELECT lease_until + interval '4 seconds' FROM django_pgqueue_job")
    ended = 0
    while stage.facts.value("SELECT clock_timestamp() < %s", ends):
        ended += stage.facts.value(TERMINATE, "pgqueue worker-A%heartbeat")
        pause(0.7)
    stage.record.event("for two leases: pg_terminate_backend on the heartbeat's session whenever it has one")
    stage.record.figure("sessions ended", ended)
    stage.check("the heartbeat had sessions to end", ended > 0, ended)
    stage.open_gate("go")
    stage.until_state(1, "done", 1)
    stage.stop_workers()
    invariants.check(stage)


@scenarios.add("terminate-listener", "The listener's session is ended: polling still finds every job")
def terminate_listener(stage: Stage) -> None:
    if not stage.place.listen:
        raise Skip("the workers do not listen (--no-listen)")
    stage.worker("A")
    (first,) = stage.enqueue("plain")
    stage.until_state(first, "done", 1)
    ended = stage.facts.value(TERMINATE, "pgqueue worker-A%listener")
    stage.record.event("pg_terminate_backend on the listener's session")
    if not ended:
        raise Skip("the workers of this version have no listener's session")
    (second,) = stage.enqueue("plain")
    stage.until_state(second, "done", 1)
    stage.stop_workers()
    invariants.check(stage)


@scenarios.add(
    "read-only", "The database turns read-only in the middle of a job, and back: the job ends once, as done"
)
def read_only(stage: Stage) -> None:
    jobs = [*stage.enqueue("outside", gate="go"), *stage.enqueue("plain")]
    worker = stage.worker("A", lease=60)
    stage.until_reached(jobs[0])
    try:
        _set_read_only(stage, "on")
        _despite_read_only(stage, "INSERT INTO lab_gates VALUES ('go')")
        worker.wait_for_output("does not answer")
        stage.record.event("worker-A has tried to write the job's ending")
        stage.check_value(
            "while nothing can be written, the job stays the worker's own",
            f"SELECT state FROM django_pgqueue_job WHERE id = {jobs[0]}",
            "running",
        )
    finally:
        _set_read_only(stage, "off")
    for job_id in jobs:
        stage.until_state(job_id, "done", 1)
    stage.stop_workers()
    stage.check_value("no attempt was recorded as failed", "SELECT count(*) FROM django_pgqueue_failure", 0)
    invariants.check(stage)


def _set_read_only(stage: Stage, value: str) -> None:
    statement = f'ALTER DATABASE "{stage.target.name}" SET default_transaction_read_only = {value}'
    _despite_read_only(stage, statement)
    # All of them, its own at last: behind a pooler any server session may serve the worker next.
    stage.facts.value(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    stage.facts.quietly("SELECT pg_terminate_backend(pg_backend_pid())")
    stage.facts.reconnect()
    stage.record.event("every session is ended, so that the new ones have it")


def _despite_read_only(stage: Stage, statement: str) -> None:
    """Run a statement in a transaction that is not read-only; a SET would stay behind in a pooler's session."""
    stage.facts.quietly("BEGIN READ WRITE")
    stage.facts.run(statement)
    stage.facts.quietly("COMMIT")

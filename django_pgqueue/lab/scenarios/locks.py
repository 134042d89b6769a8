"""Somebody else's lock on a running job, and a worker without a free slot beside an orphan."""

from __future__ import annotations

from .. import invariants
from ..scenario import Scenarios
from ..stage import Stage

scenarios = Scenarios("locks")


@scenarios.add(
    "row-lock", "A running job's row is locked for two leases: neither lost nor taken over meanwhile"
)
def row_lock(stage: Stage) -> None:
    stage.enqueue("plain", gate="go")
    stage.worker("A")
    stage.until_reached(1)
    stage.worker("B")
    locker = stage.session("locker")
    locker.run("BEGIN")
    locker.run("SELECT id FROM django_pgqueue_job WHERE id = 1 FOR UPDATE")
    stage.until_row(
        "the lease is over, and as long again",
        "SELECT lease_until + interval '2 seconds' < clock_timestamp() FROM django_pgqueue_job",
    )
    stage.check_value("nobody has reclaimed it", "SELECT generation FROM django_pgqueue_job", 1)
    stage.check_value("no renewal was refused", "SELECT count(*) FROM django_pgqueue_rejection", 0)
    stage.open_gate("go")
    (other,) = stage.enqueue("plain")
    stage.until_state(other, "done", 1)
    stage.record.event("so worker-B, and perhaps A, take other jobs meanwhile")
    locker.run("COMMIT")
    stage.until_state(1, "done")
    stage.record.figure(
        "generation that ended it",
        stage.facts.value("SELECT generation FROM django_pgqueue_job WHERE id = 1"),
    )
    stage.stop_workers()
    invariants.check(stage)


@scenarios.add(
    "full-registry", "A full worker and two orphans: the spent one fails, the other waits for a slot"
)
def full_registry(stage: Stage) -> None:
    orphan, spent = stage.enqueue("plain", gate="go")[0], stage.enqueue("plain", gate="go", max_attempts=1)[0]
    dying = stage.worker("A", concurrency=2)
    for job_id in (orphan, spent):
        stage.until_reached(job_id)
    dying.freeze()
    stage.record.event("SIGSTOP to worker-A, which has two jobs: they will be orphans")
    long_jobs = stage.enqueue("plain", 2, gate="long")
    stage.worker("B", concurrency=2)
    for job_id in long_jobs:
        stage.until_reached(job_id)
    dying.kill()
    stage.record.event("SIGKILL to worker-A")
    stage.until_state(spent, "failed", 1)
    stage.until_row(
        "every first lease has been over for another one",
        "SELECT clock_timestamp() > max(started_at) + interval '4 seconds' FROM django_pgqueue_job",
    )
    stage.check_value(
        "the long jobs were renewed, not reclaimed",
        f"SELECT count(*) FROM django_pgqueue_job WHERE id IN {tuple(long_jobs)} AND generation = 1"
        " AND lease_until > clock_timestamp()",
        2,
    )
    stage.open_gate("go")
    stage.open_gate("long")
    stage.until_all_ended()
    stage.until_state(orphan, "done", 2)
    stage.stop_workers()
    rows = stage.facts.run("SELECT job_id, kind FROM django_pgqueue_failure ORDER BY job_id")
    stage.check(
        "both lost attempts are on record",
        rows == [[orphan, "lease_expired"], [spent, "lease_expired"]],
        rows,
    )
    invariants.check(stage)

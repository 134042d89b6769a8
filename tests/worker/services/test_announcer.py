"""Receivers hear of every end, also of a worker that stops."""

from __future__ import annotations

from tests.processes.stage import Stage
from tests.worker.tools import LONG, Start, enqueue


def test_receivers_hear_of_the_jobs_that_end_while_their_worker_stops(
    stage: Stage, start: Start, pool: str
) -> None:
    """Also a slow receiver, and a job that failed; with child processes, one of them tells it."""
    worker = start(*LONG, "--concurrency", "3", faults="finished")
    done = [enqueue(stage, "hold", "end") for _ in range(2)]
    failed = enqueue(stage, "hold_and_fail", "end", max_attempts=1)
    for job in (*done, failed):
        stage.wait_note("started", job)
    worker.stop()
    worker.wait_for(lambda: "Stopping" in worker.output)
    stage.open("end")
    assert worker.wait() == 0, worker.output
    heard = stage.notes("finished")
    assert {note["job"]: note["status"] for note in heard} == {
        **dict.fromkeys(done, "SUCCESSFUL"),
        failed: "FAILED",
    }
    assert len(heard) == 3
    assert len(stage.notes("job_failed", failed)) == 1
    assert {note["pid"] == worker.pid for note in heard} == {pool == "threads"}


def test_the_end_of_a_job_is_heard_of_before_the_next_one_has_ended(stage: Stage, start: Start) -> None:
    """That one may take hours, and be given back by a stop: the announcement would be lost."""
    worker = start(*LONG, "--concurrency", "1", "--shutdown-timeout", "0", faults="finished,slow-announcer")
    first, second = (enqueue(stage, "hold", gate) for gate in ("first", "never"))
    stage.wait_note("started", first)
    stage.open("first")
    stage.wait_note("finished", first)
    stage.wait_note("started", second)
    worker.stop()
    assert worker.wait() == 0, worker.output
    assert stage.brief(second)[0] == "ready"
    assert [note["job"] for note in stage.notes("finished")] == [first]

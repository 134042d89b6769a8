"""What is left to do when a job, or its worker, has come to its end."""

from __future__ import annotations

import signal
import time

import pytest

from tests.processes.stage import Stage
from tests.worker.tools import LONG, Start, effects_of, enqueue, is_running

LOCK = "SELECT 1 FROM django_pgqueue_job WHERE id = ANY(%s) FOR UPDATE"


@pytest.mark.usefixtures("leftovers")
@pytest.mark.parametrize("how", ["returns", "raises"])
def test_a_fork_that_comes_back_from_its_task_ends_there(stage: Stage, start: Start, how: str) -> None:
    """The original's ending is the only one, and its connection is still its own."""
    worker = start(*LONG, "--concurrency", "1", settings={"database": {"CONN_MAX_AGE": None}})
    for _ in range(3):
        job = enqueue(stage, "fork_and_go_on", how)
        row = stage.wait_state(job, "done")
        note = stage.wait_note("started", job)
        assert (row["result"], row["generation"], row["attempts"]) == (note["pid"], 1, 1)
        assert effects_of(stage, job) == ["before the fork"]
        stage.wait(lambda note=note: not is_running(note["left"]), "the copy has ended")
    assert stage.count("django_pgqueue_failure") == stage.count("django_pgqueue_rejection") == 0
    assert len({note["pid"] for note in stage.notes("started")}) == 1  # nothing had to be replaced
    worker.stop()
    assert worker.wait() == 0, worker.output


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


def test_a_worker_that_stops_leaves_jobs_whose_rows_are_locked_to_their_leases(
    stage: Stage, start: Start
) -> None:
    """One runs on, one has ended; neither can be written, and neither is lost."""
    worker = start("--lease", "3", "--shutdown-timeout", "1")
    running, ended = enqueue(stage, "hold", "later"), enqueue(stage, "hold", "now")
    for job in (running, ended):
        stage.wait_note("started", job)
    with stage.connect() as session, session.transaction():
        session.execute(LOCK, [[running, ended]])
        stage.open("now")
        worker.send(signal.SIGTERM)
        since = time.monotonic()
        assert worker.wait(30) == 0, worker.output
        took = time.monotonic() - since
        assert 0.9 < took < 1 + 1 + 5
        assert {stage.brief(job) for job in (running, ended)} == {("running", 1, 1)}
        stage.wait(lambda: stage.sessions(worker) == [], "none of its sessions waits for the rows")
    stage.open("later")
    start("--lease", "3")
    for job in (running, ended):
        stage.wait_state(job, "done")
        assert stage.brief(job) == ("done", 2, 2)
        assert stage.failures(job) == [(1, "lease_expired", "")]
    assert stage.count("django_pgqueue_rejection") == 0


def test_after_twenty_timeouts_in_a_row_every_slot_still_works_and_the_worker_stops(stage: Stage) -> None:
    """A thread that is told of its timeout takes no lock along."""
    worker = stage.worker("--concurrency", "4", *LONG)
    late = [enqueue(stage, "spin_in_vain", max_attempts=1) for _ in range(20)]
    for job in late:
        stage.wait_state(job, "failed")
        assert stage.failures(job) == [(1, "timeout", "django_pgqueue.exceptions.JobTimeout")]
    after = [enqueue(stage, "hold", "end") for _ in range(4)]
    stage.wait(lambda: len(stage.notes("started")) == 4, "all slots work")
    stage.open("end")
    for job in after:
        assert stage.wait_state(job, "done")["attempts"] == 1
    worker.stop()
    assert worker.wait() == 0, worker.output

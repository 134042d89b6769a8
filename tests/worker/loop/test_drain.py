"""A worker that stops: what still runs is awaited, then given back, or left to its lease."""

from __future__ import annotations

import signal
import time

from tests.processes.stage import Stage
from tests.worker.tools import LONG, Start, enqueue

LOCK = "SELECT 1 FROM django_pgqueue_job WHERE id = ANY(%s) FOR UPDATE"


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


def test_a_stop_drains_what_runs_and_claims_nothing_more(stage: Stage, start: Start) -> None:
    worker = start(*LONG, "--concurrency", "2")
    job = enqueue(stage, "hold", "end")
    stage.wait_note("started", job)
    worker.stop()
    worker.wait_for(lambda: "Stopping" in worker.output)
    later = enqueue(stage, "add", 1, 2)
    stage.stays(lambda: stage.brief(job) == ("running", 1, 1), 0.3, "it runs on")
    stage.open("end")
    assert worker.wait() == 0, worker.output
    assert (stage.brief(job), stage.brief(later)) == (("done", 1, 1), ("ready", 0, 0))


def test_after_the_shutdown_timeout_the_rest_is_given_back(stage: Stage, start: Start) -> None:
    worker = start(*LONG, "--concurrency", "2", "--shutdown-timeout", "0.5")
    running = [enqueue(stage, "hold", "never") for _ in range(2)]
    for job in running:
        stage.wait_note("started", job)
    worker.stop()
    assert worker.wait(10) == 0, worker.output
    assert {stage.brief(job) for job in running} == {("ready", 1, 0)}
    assert stage.count("django_pgqueue_worker") == 0

"""`--pool processes`: children that leave processes behind, fork, freeze, die late or cannot be started."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import psutil
import pytest

from tests.processes.stage import Stage, Worker
from tests.worker.tools import TASKS, children, effects_of, enqueue, is_running, start_processes

pytestmark = pytest.mark.usefixtures("effects")

CRASHED = "django_pgqueue.exceptions.JobCrashed"


@contextmanager
def frozen(*pids: int) -> Iterator[None]:
    """Freeze processes; what is left of them at last is killed."""
    processes = [psutil.Process(pid) for pid in pids]
    try:
        for process in processes:
            process.suspend()
        yield
    finally:
        for process in processes:
            if process.is_running():  # and no other one under its number
                process.kill()


def reach_ahead(stage: Stage) -> None:
    """Let short jobs teach the worker to claim many at once, and to hand a child several."""
    stage.enqueue_many("noop", 300)
    stage.wait_all_done(300)


def enqueue_together(stage: Stage, *jobs: tuple[object, ...]) -> list[int]:
    """Enqueue jobs (task, *arguments) in one statement, so that one claim finds them all, in this order."""
    rows = stage.sql(
        "INSERT INTO django_pgqueue_job (task, payload)"
        " SELECT task, payload FROM unnest(%s::text[], %s::jsonb[]) WITH ORDINALITY AS job (task, payload, place)"
        " ORDER BY place RETURNING id",
        [f"{TASKS}.{task}" for task, *_ in jobs],
        [json.dumps({"args": args, "kwargs": {}}) for _, *args in jobs],
    )
    return [row["id"] for row in rows]


def wait_renewed_twice(stage: Stage, job: int) -> None:
    """Wait until the lease was pushed ahead two times from now."""
    for _ in range(2):
        before = stage.job(job)["lease_until"]
        stage.wait(lambda before=before: stage.job(job)["lease_until"] > before, f"job {job} is renewed")


def stop_and_leave_nothing(stage: Stage, worker: Worker) -> float:
    """Stop the worker; return how many seconds it took."""
    family = psutil.Process(worker.pid).children(recursive=True)
    since = time.monotonic()
    worker.stop()
    assert worker.wait(30) == 0, worker.output
    took = time.monotonic() - since
    assert psutil.wait_procs(family, timeout=5)[1] == []
    return took


@pytest.mark.usefixtures("leftovers")
def test_a_child_that_dies_is_missed_although_a_process_of_its_job_still_has_its_pipe(stage: Stage) -> None:
    """The pipe does not end, so only the process itself can tell; nor may the stop wait for the one that is left."""
    worker = start_processes(stage, "--lease", "60")
    dead = enqueue(stage, "leave_a_process", "over", True, max_attempts=1)
    stage.wait_state(dead, "failed")
    assert stage.failures(dead) == [(1, "crashed", CRASHED)]
    alive = enqueue(stage, "leave_a_process", "over", False)
    stage.wait_state(alive, "done")
    left = [stage.wait_note("started", job)["left"] for job in (dead, alive)]
    stage.wait_state(enqueue(stage, "add", 1, 2), "done")

    since = time.monotonic()
    worker.stop()
    assert worker.wait() == 0, worker.output
    assert time.monotonic() - since < 4  # it takes half a second, and five where it waits for them
    assert [is_running(pid) for pid in left] == [True, True]
    stage.open("over")
    stage.wait(lambda: not any(is_running(pid) for pid in left), "they have left")


def test_a_frozen_child_keeps_its_leases_holds_up_no_other_and_goes_with_its_worker(stage: Stage) -> None:
    """One is frozen in its job; another idle, and is then given a job larger than its pipe."""
    worker = start_processes(stage, "--concurrency", "3", "--shutdown-timeout", "1")
    held = enqueue(stage, "hold", "never")
    others = [enqueue(stage, "hold", "go") for _ in range(2)]
    busy, idle, _ = (stage.wait_note("started", job)["pid"] for job in (held, *others))
    stage.open("go")
    for job in others:
        stage.wait_state(job, "done")
    with frozen(busy, idle):
        large = enqueue_together(stage, *[("length", "x" * 900_000)] * 2)
        stage.wait(lambda: stage.states() == {"running": 2, "done": 3}, "the third child works")
        (stuck,) = (job for job in large if stage.job(job)["state"] == "running")
        for number in range(5):
            stage.wait_state(enqueue(stage, "add", number, number), "done")
        for job in (held, stuck):
            wait_renewed_twice(stage, job)
        assert {stage.brief(job) for job in (held, stuck)} == {("running", 1, 1)}

        took = stop_and_leave_nothing(stage, worker)
        assert 0.9 < took < 1 + 5
        assert {stage.brief(job) for job in (held, stuck)} == {("ready", 1, 0)}
        assert stage.count("django_pgqueue_failure") == stage.count("django_pgqueue_rejection") == 0


def test_jobs_behind_a_long_one_are_taken_back_from_its_child_and_run_by_another(stage: Stage) -> None:
    worker = start_processes(stage, "--lease", "60")
    reach_ahead(stage)
    long, *short = enqueue_together(stage, ("hold", "end"), *[("add", 1, 2)] * 30)
    for job in short:
        stage.wait_state(job, "done")
    assert stage.brief(long)[0] == "running"
    rows = [stage.job(job) for job in short]
    assert {row["attempts"] for row in rows} == {1}
    assert stage.wait_note("started", long)["pid"] not in {row["result"]["pid"] for row in rows}
    waited = max(row["finished_at"] for row in rows) - stage.job(long)["started_at"]
    assert waited.total_seconds() < 10
    stage.open("end")
    assert stage.wait_state(long, "done")["attempts"] == 1
    assert stage.count("django_pgqueue_failure") == stage.count("django_pgqueue_rejection") == 0
    stop_and_leave_nothing(stage, worker)


def test_a_child_that_dies_costs_the_jobs_that_it_had_not_begun_no_attempt(stage: Stage) -> None:
    """There is one child, and it dies at once: before what stands behind its job is asked back."""
    worker = start_processes(stage, "--lease", "60", "--concurrency", "1")
    reach_ahead(stage)
    stage.open("kill")
    job, *behind = enqueue_together(stage, ("die_first", "kill"), *[("add", 1, 2)] * 15)
    for each in (job, *behind):
        stage.wait_state(each, "done")
    assert [kind for _, kind, _ in stage.failures(job)] == ["crashed"]
    assert stage.brief(job)[2] == 2
    assert {stage.brief(each)[2] for each in behind} == {1}
    assert {len(stage.failures(each)) for each in behind} == {0}
    assert len(stage.notes("started", job)) == 2
    assert stage.count("django_pgqueue_rejection") == 0
    stop_and_leave_nothing(stage, worker)


def test_a_job_that_completed_itself_stays_done_when_its_child_dies_right_after(stage: Stage) -> None:
    worker = start_processes(stage, "--lease", "60", "--concurrency", "1")
    job = enqueue(stage, "complete_and_die")
    stage.wait_state(job, "done")
    worker.wait_for(lambda: "ended with exit code -9" in worker.output, what="the parent has noticed")
    stage.wait_state(enqueue(stage, "add", 1, 2), "done")
    stop_and_leave_nothing(stage, worker)  # so that it has written whatever it would write
    assert stage.brief(job) == ("done", 1, 1)
    assert stage.job(job)["result"] == "by itself"
    assert effects_of(stage, job) == ["generation 1"]
    assert len(stage.notes("started", job)) == 1
    assert stage.count("django_pgqueue_failure") == stage.count("django_pgqueue_rejection") == 0


def test_a_system_that_refuses_new_processes_is_asked_again_after_pauses(stage: Stage) -> None:
    worker = start_processes(stage, "--lease", "60", faults="no-children")
    job = enqueue(stage, "add", 1, 2)
    stage.wait_note("refused", count=2)
    moments = [note["at"] for note in stage.notes("refused")]
    assert min(later - earlier for earlier, later in pairwise(moments)) > 1
    assert "A child process could not be started: [Errno" in worker.output
    assert stage.brief(job) == ("ready", 0, 0)
    stage.open("children")
    stage.wait_state(job, "done")
    assert stage.brief(job) == ("done", 1, 1)
    stage.wait(lambda: len(children(worker)) == 2, "every child is there")
    stop_and_leave_nothing(stage, worker)

"""Async tasks: one event loop per process, as many at once as there are slots."""

from __future__ import annotations

import asyncio
import queue
import threading

import pytest

from django_pgqueue.holding import Holding
from django_pgqueue.worker.running.coroutines import Coroutines
from tests.processes.stage import Stage
from tests.worker.held import claimed_from, hold
from tests.worker.tools import effects_of, enqueue

pytestmark = pytest.mark.usefixtures("effects")


def test_thirty_coroutines_run_at_once_on_one_event_loop(stage: Stage) -> None:
    jobs = [enqueue(stage, "anap", 0.3) for _ in range(30)]
    worker = stage.worker("--concurrency", "30", "--lease", "60", wait=False)
    stage.wait_all_done(30)
    slept = stage.notes("slept")
    assert max(note["ended"] for note in slept) - min(note["begun"] for note in slept) < 2.0
    results = {tuple(stage.job(job)["result"]) for job in jobs}
    assert len(results) == 1  # one thread, one loop
    assert {stage.brief(job) for job in jobs} == {("done", 1, 1)}
    worker.stop()
    assert worker.wait() == 0


def test_no_more_coroutines_than_slots_run_at_once(stage: Stage) -> None:
    for _ in range(4):
        enqueue(stage, "anap", 0.4)
    stage.worker("--concurrency", "2", "--lease", "60", wait=False)
    stage.wait_all_done(4)
    moments = sorted((note["begun"], note["ended"]) for note in stage.notes("slept"))
    for begun, _ in moments:
        assert sum(start <= begun < end for start, end in moments) <= 2


def test_blocking_code_in_a_coroutine_loses_no_lease(stage: Stage) -> None:
    """Neither its own nor that of the coroutine beside it, nor of a job in a thread, for three leases."""
    worker = stage.worker("--concurrency", "3", "--lease", "0.8")
    blocking = enqueue(stage, "block_the_loop", 2.4)
    beside = enqueue(stage, "anap", 0.1)
    thread = enqueue(stage, "naps", 2.0)
    rows = [stage.wait_state(job, "done") for job in (blocking, beside, thread)]
    assert {(row["generation"], row["attempts"]) for row in rows} == {(1, 1)}
    assert rows[0]["result"] is False
    assert stage.count("django_pgqueue_rejection") == 0
    worker.stop()
    assert worker.wait() == 0


def test_two_async_jobs_inside_their_fences_at_once_do_not_share_a_transaction(stage: Stage) -> None:
    stage.worker("--concurrency", "2", "--lease", "60")
    good = enqueue(stage, "meet_inside_a_fence", "good", "go", False)
    bad = enqueue(stage, "meet_inside_a_fence", "bad", "go", True, max_attempts=1)
    for name in ("good", "bad"):
        stage.wait_note(f"inside {name}")
    assert stage.count("pool_effect") == 0  # both have written, neither has committed
    stage.open("go")
    stage.wait_state(good, "done")
    stage.wait_state(bad, "failed")
    assert (effects_of(stage, good), effects_of(stage, bad)) == (["good"], [])
    assert stage.count("django_pgqueue_rejection") == 0


def test_a_task_that_leaves_the_event_loop_does_not_end_it(caplog) -> None:
    """SystemExit in an asyncio task that a job created ends `run_forever`. Report 39."""

    async def leave() -> None:
        raise SystemExit(3)

    class Leaving:
        async def arun(self, holding: Holding) -> None:
            if holding.run.timeout:
                left = asyncio.get_running_loop().create_task(leave())
                await asyncio.sleep(0.05)
                assert isinstance(
                    left.exception(), SystemExit
                )  # else asyncio logs it whenever it is collected

    over: queue.SimpleQueue[Holding] = queue.SimpleQueue()
    coroutines = Coroutines(Leaving(), over=lambda holding, ending: over.put(holding))
    try:
        for leaves in (True, False):
            holding = hold(claimed_from("q"))
            holding.run.timeout = 1.0 if leaves else None
            coroutines.add(holding)
            coroutines.start(holding)
            assert over.get(timeout=10) is holding
    finally:
        coroutines.stop(timeout=10)
    assert not [thread for thread in threading.enumerate() if thread.name == "pgqueue-coroutines"]
    assert "goes on" in caplog.text

"""How many jobs are claimed beyond the free slots, and what becomes of those that wait."""

from __future__ import annotations

from collections import Counter

import pytest

from django_pgqueue.worker.loop.prefetch import AHEAD_SECONDS, MOST, Prefetch
from tests.processes.stage import Stage
from tests.worker.tools import TASKS, enqueue


def after(*measures: tuple[int, float], slots: int = 4) -> int:
    prefetch = Prefetch(slots)
    for jobs, seconds in measures:
        prefetch.note(jobs, seconds)
    return prefetch.size


def test_before_anything_is_known_nothing_is_claimed_ahead():
    assert after() == 0
    assert after((0, 0.0)) == 0


def test_short_jobs_let_it_grow_by_one_for_each_that_ended_and_no_further_than_the_most():
    assert after((1, 0.001)) == 1
    assert after((10, 0.01)) == 10
    assert after((10, 0.01), (15, 0.015)) == 25
    assert after(*[(50, 0.05)] * 10) == MOST


@pytest.mark.parametrize("seconds", [0.5, 1.0, 60.0])
def test_long_jobs_are_not_claimed_ahead_however_many_there_were(seconds):
    assert after(*[(4, 4 * seconds)] * 50) == 0


def test_in_between_it_is_what_keeps_the_slots_busy_for_a_moment():
    """20 ms a job, four slots: 50 ms ahead is ten jobs."""
    assert after(*[(20, 20 * 0.02)] * 20) == int(4 * AHEAD_SECONDS / 0.02) == 10
    assert after(*[(20, 20 * 0.02)] * 20, slots=1) == 2


def test_it_shrinks_when_jobs_become_long():
    short, long = (50, 0.05), (4, 8.0)
    assert after(*[short] * 10) == MOST
    assert after(*[short] * 10, *[long] * 3) == 0


def test_one_long_job_among_many_short_ones_does_not_stop_it():
    assert after(*[(50, 0.05)] * 10, (50, 0.05 + 0.05)) > 50


def test_after_jobs_had_to_be_given_back_it_starts_again_from_nothing():
    prefetch = Prefetch(4)
    prefetch.note(50, 0.05)
    prefetch.stall()
    assert prefetch.size == 0
    prefetch.note(2, 0.002)
    assert prefetch.size == 2


def test_nobody_sits_on_waiting_jobs_while_another_worker_is_idle(stage: Stage) -> None:
    """Concurrency 2, 20 jobs of half a second, two workers: an even split, and never more leases than slots.

    Report 132.
    """
    workers = [stage.worker("--concurrency", "2", "--lease", "60") for _ in range(2)]
    stage.sql(
        "INSERT INTO django_pgqueue_job (task, payload)"
        ' SELECT %s, \'{"args": [0.5], "kwargs": {}}\' FROM generate_series(1, 20)',
        f"{TASKS}.naps",
    )
    held = Counter[str]()

    def all_done() -> bool:
        rows = stage.sql("SELECT worker_ids[1] AS id FROM django_pgqueue_job WHERE state = 'running'")
        now = Counter(row["id"] for row in rows)
        for worker_id, count in now.items():
            held[worker_id] = max(held[worker_id], count)
        return stage.states() == {"done": 20}

    stage.wait(all_done, lambda: f"{stage.states()}\n{stage.logs()}", 40)
    assert held == {worker.id: 2 for worker in workers}
    rows = stage.sql("SELECT worker_ids FROM django_pgqueue_job")
    shares = Counter(row["worker_ids"][0] for row in rows)
    assert {len(row["worker_ids"]) for row in rows} == {1}
    assert min(shares.values()) >= 7, shares


def test_jobs_that_wait_behind_long_ones_are_given_back_with_their_attempt_and_run_elsewhere(
    stage: Stage,
) -> None:
    """Short jobs made the worker reach far ahead; then long ones come, and stand in front of short ones."""
    first = stage.worker("--concurrency", "1", "--lease", "60", "--interval", "0.2")
    stage.enqueue_many("noop", 300)
    stage.wait_all_done(300)
    long = enqueue(stage, "hold", "end", priority=1)
    stage.sql(
        "INSERT INTO django_pgqueue_job (task, payload)"
        ' SELECT %s, \'{"args": [1, 2], "kwargs": {}}\' FROM generate_series(1, 20)',
        f"{TASKS}.add",
    )
    stage.wait_note("started", long)
    live = "SELECT state, attempts FROM django_pgqueue_job WHERE state <> 'done' ORDER BY state, attempts"
    as_they_came = [("ready", 0)] * 20 + [("running", 1)]
    stage.wait(
        lambda: [(row["state"], row["attempts"]) for row in stage.sql(live)] == as_they_came,
        "it holds only what it runs",
        10,
    )
    second = stage.worker("--concurrency", "1", "--lease", "60")
    stage.wait_all_done(320)
    rows = stage.sql("SELECT * FROM django_pgqueue_job WHERE task LIKE %s", "%.add")
    assert {(row["state"], row["attempts"], row["worker_ids"][-1]) for row in rows} == {
        ("done", 1, second.id)
    }
    assert stage.brief(long)[0] == "running"
    assert first.returncode is None
    stage.open("end")
    stage.wait_state(long, "done")
    assert stage.count("django_pgqueue_failure") == stage.count("django_pgqueue_rejection") == 0

"""The thread pool alone: whose slot a job has, and when it is free again."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_pgqueue.exceptions import JobTimeout
from django_pgqueue.holding import Holding
from django_pgqueue.lab.waiting import until
from django_pgqueue.lease import Lease
from django_pgqueue.worker.running.threads import ThreadPool
from tests.processes.stage import Stage
from tests.worker.tools import LONG, enqueue

BLOCKED_SECONDS = 0.3
WITHIN = timedelta(seconds=20)


class Place:
    """A pool whose jobs are functions, and what became of them."""

    def __init__(self, size: int) -> None:
        self.bodies: dict[int, Callable[[], object]] = {}
        self.ended: list[int] = []
        self.coroutines: dict[int, Callable[[], object]] = {}  # each ends one
        self.cancelled: list[int] = []
        self.short: set[int] = set()  # coroutines that end at once
        self.pool = ThreadPool(
            size,
            execution=self,
            ended=lambda holding, ending: self.ended.append(holding.lease.job_id),
            name="a pool",
        )
        self.pool.start()

    def submit(self, *bodies: Callable[[], object], task: str = "sync") -> list[Holding]:
        holdings = [holding_of(len(self.bodies) + number, task) for number in range(len(bodies))]
        self.bodies |= {holding.lease.job_id: body for holding, body in zip(holdings, bodies, strict=True)}
        self.pool.submit(holdings)
        return holdings

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        until(holds, what, within=WITHIN)

    # What a pool asks of the execution.

    def is_async(self, holding: Holding) -> bool:
        return holding.lease.task != "sync"

    def run(self, holding: Holding) -> None:
        try:
            self.bodies[holding.lease.job_id]()
        except JobTimeout:
            return

    async def arun(self, holding: Holding) -> None:
        """Wait to be ended, whatever comes between; or end at once, or block the event loop once two are here."""
        if holding.lease.task == "blocking":
            if not self.ended:
                until(lambda: len(self.pool._coroutines) == 2, "the other one is here", within=WITHIN)
            threading.Event().wait(BLOCKED_SECONDS)
            return
        if holding.lease.job_id in self.short:
            return
        end, loop = asyncio.Event(), asyncio.get_running_loop()
        self.coroutines[holding.lease.job_id] = lambda: loop.call_soon_threadsafe(end.set)
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                self.cancelled.append(holding.lease.job_id)


def holding_of(number: int, task: str) -> Holding:
    lease = Lease(
        job_id=number, generation=1, attempt=1, max_attempts=1, task=task, queue="q", priority=0, backend="b",
        payload="{}", worker="w", worker_ids=["w"], enqueued_at=datetime.now(UTC), started_at=None, claimed_at=None,
        duration=timedelta(seconds=30),
    )  # fmt: skip
    return Holding(lease, sent_at=0.0, stopping=threading.Event(), using="default")


@pytest.fixture
def place() -> Iterator[Any]:
    made: list[Place] = []

    def make(size: int) -> Place:
        made.append(Place(size))
        return made[-1]

    yield make
    for each in made:
        each.pool.stop(timeout=10)


def test_every_job_runs_once_and_no_more_at_once_than_there_are_slots(place) -> None:
    here = place(3)
    at_once: list[int] = []
    running: set[int] = set()

    def body() -> None:
        running.add(threading.get_ident())
        at_once.append(len(running))
        threading.Event().wait(0.0005)
        running.discard(threading.get_ident())

    here.submit(*[body] * 500)
    here.wait(lambda: len(here.ended) == 500, "all have ended")
    assert sorted(here.ended) == list(range(500))
    assert max(at_once) == 3
    here.wait(lambda: here.pool.free == 3, "every slot is free")
    assert here.pool.take_measure()[0] == 500
    assert here.pool.take_measure() == (0, 0.0)


def test_a_coroutine_has_the_slot_until_it_ends(place) -> None:
    here = place(1)
    here.submit(lambda: None, task="async")
    here.wait(lambda: bool(here.coroutines), "it is handed over")
    here.submit(lambda: None)
    assert here.pool.free == -1
    assert here.ended == []
    here.coroutines[0]()
    here.wait(lambda: here.ended == [0, 1], "both have ended, in turn")
    here.wait(lambda: here.pool.free == 1, "the slot is free")
    assert not here.pool.is_busy


def test_the_end_of_a_coroutine_finds_its_slot_free(place) -> None:
    """However short it is: the loop claims then, and is told no second time."""
    here = place(1)
    free: queue.SimpleQueue[int] = queue.SimpleQueue()
    here.pool._ended = lambda holding, ending: free.put(here.pool.free)
    here.short.update(range(500))
    for _ in range(500):
        here.submit(lambda: None, task="async")
        assert free.get(timeout=20) == 1


def test_a_coroutine_that_waits_behind_one_that_blocks_counts_its_wait(place) -> None:
    """So that no more are claimed ahead for an event loop that is held up."""
    here = place(2)
    here.submit(lambda: None, lambda: None, task="blocking")
    here.wait(lambda: len(here.ended) == 2, "both have ended")
    jobs, seconds = here.pool.take_measure()
    assert jobs == 2
    assert (
        seconds > 2.5 * BLOCKED_SECONDS
    )  # one, and two of them for the one that waited; two without the wait


def test_a_job_that_is_given_up_leaves_its_slot_at_once_and_is_counted_once(place) -> None:
    here = place(1)
    gate, started, stubborn = threading.Event(), threading.Event(), threading.Event()

    def never_mind() -> None:
        started.set()
        while not gate.is_set():
            try:
                gate.wait(0.01)
            except JobTimeout:
                stubborn.set()

    (holding,) = here.submit(never_mind)
    assert started.wait(20)
    here.pool.abandon(holding)
    here.pool.abandon(holding)
    assert (here.pool.free, holding.fate.abandoned, here.pool.is_busy) == (1, True, True)
    assert stubborn.wait(20)

    here.submit(lambda: None)
    here.wait(lambda: here.ended == [1], "another one has the slot")
    gate.set()
    here.wait(lambda: not here.pool.is_busy, "the stubborn one is gone")
    assert here.pool.free == 1
    assert here.ended == [1]


def test_a_coroutine_that_ignores_its_cancellation_leaves_its_slot_too(place) -> None:
    here = place(1)
    (holding,) = here.submit(lambda: None, task="async")
    here.wait(lambda: bool(here.coroutines), "it is handed over")
    here.pool.abandon(holding)
    assert (here.pool.free, here.pool.is_busy) == (1, True)
    here.wait(lambda: here.cancelled == [0], "it is cancelled")
    here.coroutines[0]()
    here.wait(lambda: not here.pool.is_busy, "it has ended")
    assert (here.pool.free, here.ended) == (1, [])
    here.submit(lambda: None)
    here.wait(lambda: here.ended == [1], "the slot is used again")


def test_what_was_taken_back_does_not_run_and_takes_no_turn(place) -> None:
    here = place(1)
    gate, started = threading.Event(), threading.Event()
    here.submit(lambda: (started.set(), gate.wait()))
    assert started.wait(20)
    waiting = here.submit(*[lambda: None] * 5)
    assert here.pool.longest_wait() > 0
    assert here.pool.take_unstarted() == waiting
    assert here.pool.longest_wait() == 0
    gate.set()
    here.submit(lambda: None)
    here.wait(lambda: here.ended == [0, 6], "the one that came later has run")
    here.wait(lambda: here.pool.free == 1, "the slot is free")


def test_a_job_that_is_given_up_just_as_it_ends_keeps_its_thread(place) -> None:
    """It is too late to interrupt it: the thread has let go of it, and has not counted it yet."""
    here = place(1)
    gate, started = threading.Event(), threading.Event()
    (holding,) = here.submit(lambda: (started.set(), gate.wait()))
    assert started.wait(20)
    (post,) = here.pool._posts
    post.lock = AbandonsAfterwards(lambda: here.pool.abandon(holding))
    gate.set()
    here.wait(lambda: here.ended == [0], "it has ended")
    here.submit(lambda: None)
    here.wait(lambda: here.ended == [0, 1], "its thread goes on")
    here.wait(lambda: here.pool.free == 1, "the slot is free")
    assert here.pool._posts == [post]


class AbandonsAfterwards:
    """A lock after which something happens, the first time."""

    def __init__(self, then: Callable[[], object]) -> None:
        self._lock = threading.Lock()
        self._then: Callable[[], object] | None = then

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self._lock.release()
        then, self._then = self._then, None
        if then is not None:
            then()


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

"""The registry: a lease has one ending, whoever says it first, and is held until that has its verdict."""

from __future__ import annotations

import threading

from django_pgqueue.outcomes import Ending
from django_pgqueue.worker.loop.registry import Registry
from tests.worker.held import claimed_from, hold


def test_of_two_endings_the_first_counts_and_only_one_is_written() -> None:
    woken = threading.Event()
    registry = Registry(woken)
    holding = hold(claimed_from("q"))
    registry.add([holding])
    assert not registry.has_endings
    assert registry.end(holding, Ending.done(holding.lease))
    assert not registry.end(holding, Ending.released(holding.lease))
    assert (holding.fate.ended, woken.is_set(), len(registry)) == (True, True, 1)
    (ending,) = registry.take_endings()
    assert ending.state == "done"
    assert registry.take_endings() == []


def test_of_many_threads_that_end_a_lease_at_once_one_has_the_say() -> None:
    registry = Registry(threading.Event())
    for _ in range(200):
        holding = hold(claimed_from("q"))
        registry.add([holding])
        start = threading.Barrier(4)
        said: list[bool] = []

        def end(holding=holding, start=start, said=said) -> None:
            start.wait()
            said.append(registry.end(holding, Ending.done(holding.lease)))

        threads = [threading.Thread(target=end) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(said) == [False, False, False, True]
        assert len(registry.take_endings()) == 1


def test_an_ending_without_a_verdict_is_asked_again_before_those_that_came_later() -> None:
    registry = Registry(threading.Event())
    first, second = hold(claimed_from("a")), hold(claimed_from("b")._replace(job_id=2))
    registry.add([first, second])
    registry.end(first, Ending.done(first.lease))
    taken = registry.take_endings()
    registry.end(second, Ending.done(second.lease))
    registry.put_back(taken)
    assert [ending.lease.queue for ending in registry.take_endings()] == ["a", "b"]


def test_a_lease_is_held_until_it_is_forgotten_and_one_without_an_ending_is_dropped_at_once() -> None:
    registry = Registry(threading.Event())
    first, second = hold(claimed_from("a")), hold(claimed_from("b")._replace(job_id=2))
    registry.add([first, second])
    registry.end(first, None)
    assert registry.keys() == [second.lease.key]
    assert not registry.has_endings
    registry.end(second, Ending.done(second.lease))
    assert registry.holdings() == [second]
    registry.forget([second.lease])
    assert (len(registry), registry.keys()) == (0, [])

"""The order in which a worker asks its queues."""

from __future__ import annotations

import pytest

from django_pgqueue import leases
from django_pgqueue.worker.loop.claimer import Selection
from tests.races.tools import new_job, new_jobs
from tests.worker.held import claimed_from


def claimed_ids(**given):
    return [lease.job_id for lease in leases.claim(worker="A", **given)]


@pytest.mark.django_db(transaction=True)
def test_a_rare_queue_is_served_within_a_few_claims_beside_a_full_one():
    """Starvation: with the names rotated from claim to claim, each queue is first in turn."""
    new_jobs(500, queue="full")
    new_jobs(500, queue="fuller")
    rare = new_job(queue="rare", priority=-100)
    selection = Selection(["full", "fuller", "rare"], frozenset(), using="default")
    claims = [claimed_ids(queues=selection.queues(), limit=10) for _ in range(3)]
    assert sum(rare in claim for claim in claims) == 1
    assert [len(claim) for claim in claims] == [10, 10, 10]


@pytest.mark.django_db(transaction=True)
def test_a_rare_queue_is_served_too_when_the_worker_takes_every_queue():
    new_jobs(300, queue="full")
    rare = new_job(queue="rare")
    selection = Selection(None, frozenset(), using="default")
    assert any(rare in claimed_ids(queues=selection.queues(), limit=5) for _ in range(2))


@pytest.mark.parametrize("looks_up_each_time", [True, False])
def test_no_queue_is_first_more_often_than_another(monkeypatch, looks_up_each_time: bool) -> None:
    """Also where each claim looks the names up anew. Report 124."""
    seconds = -1.0 if looks_up_each_time else 60.0
    monkeypatch.setattr("django_pgqueue.worker.loop.claimer.CACHE_SECONDS", seconds)
    monkeypatch.setattr("django_pgqueue.worker.loop.claimer.ready_queues", lambda using: ["a", "b", "c"])
    selection = Selection(None, frozenset(), using="default")
    first = [selection.queues()[0] for _ in range(30)]
    assert {name: first.count(name) for name in "abc"} == {"a": 10, "b": 10, "c": 10}


def test_the_claim_after_a_hint_does_not_wait_for_the_names_of_the_queues_and_the_next_one_does(
    monkeypatch,
) -> None:
    look_ups = []

    def look_up(using: str) -> list[str]:
        look_ups.append(using)
        return ["a", "b"]

    monkeypatch.setattr("django_pgqueue.worker.loop.claimer.ready_queues", look_up)
    selection = Selection(None, frozenset(), using="default")
    selection.hint()
    assert (selection.queues(), len(look_ups)) == (["a", "b"], 1)  # nothing is known yet
    selection.claimed([claimed_from("b")], asked=2)

    for rounds in (1, 2, 3):  # however many hints there are
        selection.hint()
        assert (selection.queues(), len(look_ups)) == (["b"], rounds)
        selection.claimed([claimed_from("b")], asked=2)
        selection.hint()
        assert (sorted(selection.queues()), len(look_ups)) == (["a", "b"], rounds + 1)
        selection.claimed([], asked=2)

"""Unique keys: at most one live job of each, and the caller always goes on."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection, connections, transaction

from django_pgqueue import task
from django_pgqueue.compat import TaskResultStatus, task_enqueued
from django_pgqueue.leases import claim
from django_pgqueue.models import Job
from django_pgqueue.outcomes import complete
from django_pgqueue.states import Verdict
from testproject.shop.models import Order

WORKER = "somebody-1"


@task
def keep(*args: object, **kwargs: object) -> None:
    """Do nothing with anything."""


def new_order(number: str) -> Order:
    return Order.objects.create(number=number, customer="Ada", email="ada@example.com", amount="12.50")


@pytest.mark.django_db(transaction=True)
def test_a_duplicate_enqueue_returns_the_existing_job_and_the_caller_commits() -> None:
    """Report 95."""
    first = keep.using(unique_key="k", run_after=timedelta(hours=1)).enqueue("first")
    with transaction.atomic():
        new_order("A")
        second = keep.using(unique_key="k").enqueue("second")
        new_order("B")
    assert second.id == first.id
    assert second.args == ["first"]
    assert second.status == TaskResultStatus.READY
    assert Order.objects.count() == 2
    assert Job.objects.count() == 1


@pytest.mark.django_db
def test_a_duplicate_in_the_same_transaction_returns_the_existing_job() -> None:
    assert keep.using(unique_key="k").enqueue().id == keep.using(unique_key="k").enqueue().id
    assert Job.objects.count() == 1


@pytest.mark.django_db
def test_a_duplicate_announces_nothing_a_second_time() -> None:
    told: list[str] = []

    def note(task_result, **kwargs) -> None:
        told.append(task_result.id)

    task_enqueued.connect(note)
    try:
        first = keep.using(unique_key="k").enqueue()
        keep.using(unique_key="k").enqueue()
    finally:
        task_enqueued.disconnect(note)
    assert told == [first.id]


@pytest.mark.django_db
def test_the_key_is_held_while_the_job_lives_and_free_when_it_has_ended() -> None:
    unique = keep.using(unique_key="k")
    first = unique.enqueue()
    (lease,) = claim(worker=WORKER)
    assert unique.enqueue().id == first.id
    assert unique.enqueue().status == TaskResultStatus.RUNNING
    assert complete(lease) == Verdict.ACCEPTED
    second = unique.enqueue()
    assert second.id != first.id
    assert Job.objects.count() == 2


@pytest.mark.django_db
def test_no_key_is_no_key() -> None:
    """Report 99."""
    for _ in range(3):
        keep.enqueue()
        keep.using(unique_key=None).enqueue()
    assert Job.objects.filter(unique_key=None).count() == 6


def in_threads(number: int, work: Callable[[int], object]) -> list[object]:
    """Run `work` in threads that start together and close their connections."""
    start = threading.Barrier(number)

    def run(index: int) -> object:
        try:
            start.wait(10)
            return work(index)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(run, range(number)))


@pytest.mark.django_db(transaction=True)
def test_eight_threads_enqueue_one_key_and_there_is_one_live_job() -> None:
    for turn in range(5):
        ids = in_threads(8, lambda index, turn=turn: keep.using(unique_key=f"k{turn}").enqueue(index).id)
        assert len(set(ids)) == 1
    assert Job.objects.count() == 5


@pytest.mark.django_db(transaction=True)
def test_the_other_enqueues_of_a_key_succeed_when_the_first_ones_roll_back() -> None:
    def work(index: int) -> str | None:
        try:
            with transaction.atomic():
                result = keep.using(unique_key="k").enqueue(index)
                if index < 4:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            return None
        return result.id

    ids = [found for found in in_threads(8, work) if found is not None]
    job = Job.objects.get()
    assert set(ids) == {str(job.pk)}
    assert job.payload["args"][0] >= 4


@pytest.mark.django_db(transaction=True)
def test_an_enqueue_waits_for_the_key_and_gets_a_job_of_its_own_after_a_rollback() -> None:
    inserted, waits = threading.Event(), threading.Event()
    unique = keep.using(unique_key="k")

    def first() -> None:
        try:
            with transaction.atomic():
                unique.enqueue("first")
                inserted.set()
                assert waits.wait(10)
                transaction.set_rollback(True)
        finally:
            connections.close_all()

    def second() -> str:
        try:
            assert inserted.wait(10)
            return unique.enqueue("second").id
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        one, two = pool.submit(first), pool.submit(second)
        assert inserted.wait(10)
        wait_for_blocked_insert()
        assert not two.done()
        waits.set()
        one.result(10)
        second_id = two.result(10)
        assert str(Job.objects.get().pk) == second_id
    assert Job.objects.get().payload["args"] == ["second"]


def wait_for_blocked_insert() -> None:
    for _ in range(500):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND wait_event_type = 'Lock' AND query LIKE '%%ON CONFLICT%%'"
            )
            if cursor.fetchone()[0]:
                return
        threading.Event().wait(0.02)
    raise AssertionError("no insert waits")


@pytest.mark.django_db(transaction=True)
def test_a_key_that_is_taken_and_freed_all_the_time_never_fails_an_enqueue() -> None:
    stop = threading.Event()

    def consume() -> int:
        ended = 0
        try:
            while not stop.is_set():
                for lease in claim(worker=WORKER):
                    complete(lease)
                    ended += 1
        finally:
            connections.close_all()
        return ended

    with ThreadPoolExecutor(1) as pool:
        consumer = pool.submit(consume)
        try:
            ids = in_threads(4, lambda index: [keep.using(unique_key="k").enqueue().id for _ in range(50)])
        finally:
            stop.set()
        assert consumer.result(10) >= 1
    assert len({job_id for found in ids for job_id in found}) == Job.objects.count()

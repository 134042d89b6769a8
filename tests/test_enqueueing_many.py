"""`enqueue_many`: many jobs in a few statements, all or nothing, in the caller's transaction."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from asgiref.sync import async_to_sync
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_pgqueue import task
from django_pgqueue.compat import InvalidTask, TaskResultStatus, task_enqueued
from django_pgqueue.enqueueing import BATCH, Request, enqueue_many
from django_pgqueue.exceptions import InvalidPayload
from django_pgqueue.models import Job
from testproject.shop.models import Order

pytestmark = pytest.mark.django_db(transaction=True)


@task()
def add(one: object, two: object = 0) -> None:
    """Take one or two arguments."""


@task(max_attempts=7, priority=10, queue_name="reports")
def with_options(one: object) -> None:
    """Have options of its own."""


def payloads() -> list[dict[str, object]]:
    return list(Job.objects.order_by("id").values_list("payload", flat=True))


def test_the_results_are_aligned_with_the_input_and_the_jobs_in_its_order():
    calls = [(number, f"text {number}") for number in range(3 * BATCH // 2)]  # more than one statement
    results = add.enqueue_many(calls)
    assert len(results) == len(calls)
    ids = [int(result_id) for result_id in results.ids]
    assert ids == sorted(ids)
    found = dict(Job.objects.values_list("id", "payload"))
    assert [found[job_id]["args"] for job_id in ids] == [list(call) for call in calls]
    for index in (0, 1, BATCH - 1, BATCH, len(calls) - 1, -1):
        assert results[index].args == list(calls[index])
        assert int(results[index].id) == ids[index]


def test_a_call_is_a_tuple_a_dict_or_one_argument():
    add.enqueue_many([(1, 2), {"one": 3}, 4, "text", [5, 6], None, (), ((7, 8)[0],)])
    assert payloads() == [
        {"args": [1, 2], "kwargs": {}},
        {"args": [], "kwargs": {"one": 3}},
        {"args": [4], "kwargs": {}},
        {"args": ["text"], "kwargs": {}},
        {"args": [[5, 6]], "kwargs": {}},
        {"args": [None], "kwargs": {}},
        {"args": [], "kwargs": {}},
        {"args": [7], "kwargs": {}},
    ]


def test_the_results_are_a_sequence_of_task_results():
    results = add.enqueue_many(range(5))
    assert [result.args for result in results] == [[0], [1], [2], [3], [4]]
    assert [result.args for result in results[1:3]] == [[1], [2]]
    assert {result.status for result in results} == {TaskResultStatus.READY}
    with pytest.raises(IndexError):
        results[5]
    results[0].refresh()


@pytest.mark.parametrize("calls", [[], (), iter(())])
def test_nothing_to_enqueue_is_nothing(calls):
    results = add.enqueue_many(calls)
    assert (len(results), list(results)) == (0, [])
    assert not Job.objects.exists()


def test_a_few_thousand_take_one_round_trip_for_their_ids_and_one_copy():
    with CaptureQueriesContext(connection) as queries:
        add.enqueue_many(range(2 * BATCH))
    statements = [query["sql"] for query in queries if "nextval" in query["sql"] or "INSERT" in query["sql"]]
    assert len(statements) == 2  # COPY is not among what Django captures


def test_texts_with_every_special_character_of_copy_arrive_as_they_are():
    texts = ["a\\b", "\\N", "\\.", "a\tb", "a\nb", "a\r\nb", "\\n", 'say "hi"', "\u2028 é 🐘", "", "\x01\x7f"]
    add.enqueue_many(texts)
    assert [job.payload["args"] for job in Job.objects.order_by("id")] == [[text] for text in texts]


def test_a_task_a_queue_and_a_backend_with_such_characters_do_too():
    strange = "a\\t\tb\n\\N"
    request = Request(
        task=strange,
        payload="",
        queue=strange,
        priority=1,
        max_attempts=2,
        backend=strange,
        delay=timedelta(0),
    )
    ids = enqueue_many(request, ['{"args": [],\n\t"kwargs": {}}'])
    job = Job.objects.get(pk=ids[0])
    assert (job.task, job.queue, job.backend, job.priority, job.max_attempts) == (
        strange,
        strange,
        strange,
        1,
        2,
    )
    assert job.payload == {"args": [], "kwargs": {}}


def test_what_the_database_refuses_is_djangos_error_and_rolls_back_only_the_call():
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE django_pgqueue_job ADD CONSTRAINT no_seven CHECK (payload->'args' <> '[7]')"
        )
    try:
        with transaction.atomic():
            kept = add.enqueue(1)
            with pytest.raises(IntegrityError, match="no_seven"), transaction.atomic():
                add.enqueue_many(range(10))
        assert [str(job.pk) for job in Job.objects.all()] == [kept.id]
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE django_pgqueue_job DROP CONSTRAINT no_seven")


def test_an_item_that_cannot_be_stored_names_its_argument_and_rolls_back_only_the_call():
    with transaction.atomic():
        Order.objects.create(number="the caller's own", amount=1)
        with pytest.raises(InvalidPayload, match=r"args\[1\]\['when'\] is a datetime"):
            add.enqueue_many([(number, 0) for number in range(BATCH)] + [(1, {"when": datetime.now(UTC)})])
        kept = add.enqueue(1)
    assert Order.objects.count() == 1
    assert [str(job.pk) for job in Job.objects.all()] == [kept.id]


def test_an_iterable_that_raises_halfway_leaves_nothing():
    def calls() -> Iterator[int]:
        yield from range(BATCH + 1)
        raise LookupError("the source is gone")

    with pytest.raises(LookupError):
        add.enqueue_many(calls())
    assert not Job.objects.exists()


def test_the_jobs_are_part_of_the_callers_transaction():
    with transaction.atomic():
        add.enqueue_many(range(3))
        transaction.set_rollback(True)
    assert not Job.objects.exists()


def test_a_source_that_reads_the_same_database_may_be_a_generator():
    Order.objects.bulk_create(Order(number=str(number), amount=1) for number in range(10))
    add.enqueue_many(order.pk for order in Order.objects.order_by("pk").iterator(chunk_size=3))
    assert [payload["args"] for payload in payloads()] == [
        [order_id] for order_id in Order.objects.order_by("pk").values_list("pk", flat=True)
    ]


def test_a_generator_of_200_000_is_never_in_memory_as_a_whole():
    """Counted are the interpreter's memory blocks (tracemalloc says the same, in eight times the time)."""
    count = 200_000
    blocks = []

    def calls() -> Iterator[int]:
        for number in range(count):
            if number % 499 == 0:
                blocks.append(sys.getallocatedblocks())
            yield number

    with transaction.atomic():
        results = add.enqueue_many(calls())
        assert len(results) == Job.objects.count() == count
        transaction.set_rollback(True)
    assert max(blocks) - blocks[0] < 20 * BATCH


def test_the_tasks_options_hold_for_each():
    with_options.enqueue_many([1, 2])
    assert set(Job.objects.values_list("queue", "priority", "max_attempts", "state", "task")) == {
        ("reports", 10, 7, "ready", f"{__name__}.with_options")
    }


def test_using_holds_for_each():
    then = datetime(2100, 1, 1, tzinfo=UTC)
    with_options.using(priority=-5, queue_name="default", run_after=then, max_attempts=2).enqueue_many([1, 2])
    rows = set(Job.objects.values_list("queue", "priority", "max_attempts", "state", "run_after"))
    assert rows == {("default", -5, 2, "scheduled", then)}


def test_a_delay_counts_from_the_databases_clock_and_a_past_one_is_ready():
    add.using(run_after=timedelta(hours=1)).enqueue_many([1])
    add.using(run_after=timedelta(hours=-1)).enqueue_many([2])
    add.using(run_after=datetime(2001, 1, 1, tzinfo=UTC)).enqueue_many([3])
    later, past, long_past = Job.objects.order_by("id")
    assert later.state == "scheduled"
    assert abs(later.run_after - later.enqueued_at - timedelta(hours=1)) < timedelta(seconds=5)
    assert (past.state, long_past.state) == ("ready", "ready")


def test_one_unique_key_for_many_jobs_is_refused_before_anything_is_read():
    def calls() -> Iterator[int]:
        pytest.fail("it was read")
        yield 1

    with pytest.raises(InvalidTask, match="unique_key"):
        add.using(unique_key="k").enqueue_many(calls())
    assert not Job.objects.exists()


def test_the_jobs_run_as_others_do():
    from django_pgqueue import leases

    add.enqueue_many([(1, 2), {"one": 3, "two": 4}])
    arguments = [lease.arguments() for lease in leases.claim(worker="A", limit=2)]
    assert arguments == [([1, 2], {}), ([], {"one": 3, "two": 4})]


def test_receivers_hear_of_each_job():
    heard = []

    def receive(task_result, **given):
        heard.append(task_result.args)

    task_enqueued.connect(receive)
    try:
        add.enqueue_many(range(3))
    finally:
        task_enqueued.disconnect(receive)
    assert heard == [[0], [1], [2]]


def test_from_async_code_it_is_part_of_the_callers_transaction_too():
    @async_to_sync
    async def body():
        results = await add.aenqueue_many([1, 2])
        assert len(results) == 2
        assert asyncio.get_running_loop().is_running()
        return results

    with transaction.atomic():
        ids = body().ids
        assert Job.objects.filter(pk__in=list(ids)).count() == 2
        transaction.set_rollback(True)
    assert not Job.objects.exists()

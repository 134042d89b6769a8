"""Enqueueing: the caller's transaction, unique keys, arguments, times."""

import asyncio
import json
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.test import TestCase
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from django_pgqueue import InvalidPayload, task
from django_pgqueue.compat import InvalidTask, TaskResultStatus
from django_pgqueue.leases import claim
from django_pgqueue.models import Job
from django_pgqueue.outcomes import complete
from django_pgqueue.payloads import MAX_PAYLOAD_BYTES
from django_pgqueue.states import State, Verdict
from testproject.shop.models import Order

T = TypeVar("T")
WORKER = "somebody-1"


@task
def keep(*args: object, **kwargs: object) -> None:
    """Do nothing with anything."""


@task
def write_to(order_number: str) -> int:
    return Order.objects.filter(number=order_number).count()


def new_order(number: str) -> Order:
    return Order.objects.create(number=number, customer="Ada", email="ada@example.com", amount="12.50")


@contextmanager
def another_session() -> Iterator[None]:
    """Let the block use a second connection as `connections['default']` of this thread."""
    mine = connections["default"]
    other = connections["default"] = mine.copy()
    try:
        with closing(other):
            yield
    finally:
        connections["default"] = mine


def run_async(view: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in a loop of its own, and close the connections of the thread that did its queries."""

    async def run() -> T:
        try:
            return await view()
        finally:
            await sync_to_async(connections.close_all)()

    return asyncio.run(run())


def seen_elsewhere() -> int:
    with another_session():
        return Job.objects.count()


# The caller's transaction


@pytest.mark.django_db(transaction=True)
def test_a_job_is_invisible_until_the_caller_commits() -> None:
    """Report 93."""
    with transaction.atomic():
        order = new_order("A-1")
        result = write_to.enqueue(order.number)
        assert result.id.isdecimal() and result.status == TaskResultStatus.READY
        assert seen_elsewhere() == 0
        with another_session():
            assert claim(worker=WORKER) == []
        call_command("runworker", batch=True, verbosity=0)
        assert Job.objects.get().state == State.READY
    assert seen_elsewhere() == 1
    call_command("runworker", batch=True, verbosity=0)
    result.refresh()
    assert result.return_value == 1


@pytest.mark.django_db(transaction=True)
def test_a_job_is_gone_when_the_caller_rolls_back() -> None:
    """Reports 28 and 93."""
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        keep.enqueue()
        raise ZeroDivisionError
    assert Job.objects.count() == 0


@pytest.mark.django_db(transaction=True)
def test_a_job_is_gone_when_a_savepoint_rolls_back_and_the_others_stay() -> None:
    """Report 93."""
    with transaction.atomic():
        outer = keep.enqueue("outer")
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            keep.enqueue("inner")
            raise ZeroDivisionError
        after = keep.enqueue("after")
    assert sorted(str(pk) for pk in Job.objects.values_list("pk", flat=True)) == sorted([outer.id, after.id])


class EnqueueingInsideATestCase(TestCase):
    """A TestCase never commits."""

    def test_a_test_case_sees_its_jobs_at_once(self) -> None:
        """Report 94."""
        result = keep.enqueue(1)
        assert Job.objects.get().pk == int(result.id)
        result.refresh()
        assert result.status == TaskResultStatus.READY

    def test_on_commit_needs_no_trick(self) -> None:
        with self.captureOnCommitCallbacks(execute=True) as callbacks:
            transaction.on_commit(lambda: keep.enqueue(2))
            assert Job.objects.count() == 0
        assert callbacks
        assert Job.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_enqueueing_from_async_code_works() -> None:
    """Report 100."""

    async def view() -> str:
        return (await keep.aenqueue(1, two=[2])).id

    job = Job.objects.get(pk=run_async(view))
    assert job.payload == {"args": [1], "kwargs": {"two": [2]}}


@pytest.mark.django_db(transaction=True)
def test_the_transaction_around_an_async_enqueue_is_kept() -> None:
    """Report 100."""

    def in_transaction() -> int:
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            result = async_to_sync(keep.aenqueue)("inside")
            assert Job.objects.filter(pk=result.id).exists()
            assert seen_elsewhere() == 0
            raise ZeroDivisionError
        return Job.objects.count()

    async def view() -> int:
        return await sync_to_async(in_transaction)()

    assert run_async(view) == 0


# What the row says


@pytest.mark.django_db
def test_every_option_is_in_the_row() -> None:
    result = keep.using(priority=-100, queue_name="receipts", max_attempts=9, unique_key="order-1").enqueue(
        1, a="b"
    )
    job = Job.objects.get(pk=result.id)
    assert job.task == f"{__name__}.keep"
    assert (job.priority, job.queue, job.max_attempts, job.unique_key) == (-100, "receipts", 9, "order-1")
    assert (job.backend, job.state, job.attempts, job.generation) == ("default", State.READY, 0, 0)
    assert job.payload == {"args": [1], "kwargs": {"a": "b"}}
    assert job.worker_ids == [] and job.lease_until is None and job.result is None


@pytest.mark.django_db
def test_the_backends_max_attempts_hold_where_the_task_says_nothing(settings) -> None:
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": {"MAX_ATTEMPTS": 11}}}
    assert Job.objects.get(pk=keep.enqueue().id).max_attempts == 11
    assert Job.objects.get(pk=keep.using(max_attempts=2).enqueue().id).max_attempts == 2


@pytest.mark.django_db
@pytest.mark.parametrize("priority", [-100, -1, 0, 1, 100])
def test_every_priority_of_django_is_stored(priority: int) -> None:
    assert Job.objects.get(pk=keep.using(priority=priority).enqueue().id).priority == priority


@pytest.mark.django_db
def test_one_enqueue_is_one_statement() -> None:
    with CaptureQueriesContext(connection) as queries:
        keep.enqueue(1)
        keep.using(unique_key="k").enqueue(2)
    assert len(queries) == 2


# Times


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("run_after", "state"),
    [
        (timedelta(hours=1), State.SCHEDULED),
        (timedelta(days=36500), State.SCHEDULED),
        (timedelta(0), State.READY),
        (timedelta(hours=-1), State.READY),
        (timedelta.min, State.READY),
        (datetime(2000, 1, 1, tzinfo=UTC), State.READY),
        (datetime.min.replace(tzinfo=UTC), State.READY),
        (datetime.max.replace(tzinfo=UTC), State.SCHEDULED),
        (datetime(2999, 12, 31, 23, 59, tzinfo=timezone.get_fixed_timezone(840)), State.SCHEDULED),
    ],
)
def test_a_job_for_later_is_scheduled_and_any_other_is_ready(
    run_after: datetime | timedelta, state: State
) -> None:
    result = keep.using(run_after=run_after).enqueue()
    job = Job.objects.get(pk=result.id)
    assert job.state == state
    assert result.status == TaskResultStatus.READY
    if isinstance(run_after, datetime):
        assert job.run_after == run_after
    else:
        assert job.run_after == job.enqueued_at + max(run_after, timedelta(0))
    assert keep.get_result(result.id).is_finished is False
    assert bool(claim(worker=WORKER)) == (state == State.READY)


@pytest.mark.django_db
def test_without_time_zones_a_naive_time_is_in_the_current_zone(settings) -> None:
    settings.USE_TZ = False
    settings.TIME_ZONE = "Asia/Tokyo"
    at = datetime(2999, 1, 1, 12, 0)
    result = keep.using(run_after=at).enqueue()
    job = Job.objects.get(pk=result.id)
    assert (job.state, job.run_after) == (State.SCHEDULED, at)
    with connection.cursor() as cursor:
        cursor.execute("SELECT run_after AT TIME ZONE 'UTC' FROM django_pgqueue_job")
        assert cursor.fetchone()[0] == datetime(2999, 1, 1, 3, 0)
    assert keep.get_result(result.id).task.run_after == at
    with pytest.raises(InvalidTask, match="a day is not an instant"):
        keep.using(run_after=date(2999, 1, 1))


# Arguments


NEVER_STORED = [
    pytest.param(["a\x00b"], {}, r"args\[0\] contains a NUL", id="NUL"),
    pytest.param([], {"k": {"x": ["\x00"]}}, r"kwargs\['k'\]\['x'\]\[0\] contains a NUL", id="nested NUL"),
    pytest.param([{"a\x00": 1}], {}, r"a key of args\[0\] contains a NUL", id="NUL in a key"),
    pytest.param([], {"a\x00": 1}, "the name of kwargs", id="NUL in a name"),
    pytest.param([float("nan")], {}, r"args\[0\] is nan", id="NaN"),
    pytest.param([1, [float("inf")]], {}, r"args\[1\]\[0\] is inf", id="Infinity"),
    pytest.param([float("-inf")], {}, r"args\[0\] is -inf", id="-Infinity"),
    pytest.param(["\ud800"], {}, r"args\[0\] contains a lone surrogate", id="surrogate"),
    pytest.param([{"\udfff": 1}], {}, r"a key of args\[0\] contains a lone surrogate", id="surrogate key"),
    pytest.param([uuid.UUID(int=0)], {}, r"args\[0\] is a uuid.UUID", id="UUID"),
    pytest.param([], {"at": datetime(2030, 1, 1)}, r"kwargs\['at'\] is a datetime.datetime", id="datetime"),
    pytest.param([[date(2030, 1, 1)]], {}, r"args\[0\]\[0\] is a datetime.date", id="date"),
    pytest.param([Decimal("1.5")], {}, r"args\[0\] is a decimal.Decimal", id="Decimal"),
    pytest.param([{1}], {}, r"args\[0\] is a builtins.set", id="set"),
    pytest.param([b"x"], {}, r"args\[0\] is a builtins.bytes", id="bytes"),
    pytest.param([(1, 2)], {}, r"args\[0\] is a builtins.tuple", id="tuple"),
    pytest.param([{1: "x"}], {}, r"args\[0\] has the key 1", id="int key"),
    pytest.param([{None: "x"}], {}, r"args\[0\] has the key None", id="None key"),
    pytest.param([{uuid.UUID(int=0): 1}], {}, r"args\[0\] has the key UUID", id="UUID key"),
    pytest.param([10**5000], {}, "cannot be written as JSON", id="a number of 5000 digits"),
    pytest.param(["x" * MAX_PAYLOAD_BYTES], {}, f"more than {MAX_PAYLOAD_BYTES}", id="too large"),
    pytest.param(["é" * (MAX_PAYLOAD_BYTES // 2)], {}, f"more than {MAX_PAYLOAD_BYTES}", id="too many bytes"),
]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("args", "kwargs", "message"), NEVER_STORED)
def test_an_argument_that_cannot_be_stored_is_refused_before_any_sql(
    args: list[object], kwargs: dict[str, object], message: str
) -> None:
    """Reports 31, 32, 101 and 154."""
    with transaction.atomic():
        new_order("before")
        with CaptureQueriesContext(connection) as queries, pytest.raises(InvalidPayload, match=message) as e:
            keep.enqueue(*args, **kwargs)
        assert len(queries) == 0
        assert isinstance(e.value, ValueError)
        new_order("after")
    assert Order.objects.count() == 2 and Job.objects.count() == 0


def test_an_argument_that_refers_to_itself_is_refused() -> None:
    ring: list[object] = []
    ring.append(ring)
    with pytest.raises(InvalidPayload, match="nested more than 100 levels deep"):
        keep.enqueue(ring)


@pytest.mark.django_db
def test_a_payload_of_the_largest_size_is_taken_whatever_notify_allows() -> None:
    """Report 149."""
    room = MAX_PAYLOAD_BYTES - len(json.dumps({"args": [""], "kwargs": {}}, separators=(",", ":")))
    result = keep.using(queue_name="receipts").enqueue("x" * room)
    assert len(Job.objects.get(pk=result.id).payload["args"][0]) == room


ROUND_TRIPS = [
    "\\u0000",
    '"\\u0000123.0"',
    "😀",
    "\x7f",
    "\x01",
    "\u2028",
    "e\u0301",
    "",
    "NaN",
    "\\",
    '"',
    "%s",
]


@pytest.mark.django_db
@pytest.mark.parametrize("text", ROUND_TRIPS)
def test_every_other_text_reaches_the_task_as_it_was(text: str) -> None:
    """Reports 101 and 154."""
    keep.enqueue(text, {text: [text]}, **{text: text})
    (lease,) = claim(worker=WORKER)
    assert lease.arguments() == ([text, {text: [text]}], {text: text})


@pytest.mark.django_db
@pytest.mark.parametrize("number", [0, -1, 2**63, 10**40, 1.0, 0.1, 1e15, 1e16, 1e23, -1.5e300, 5e-324, 1e-7])
def test_every_number_keeps_its_value_and_its_type(number: float) -> None:
    """Report 101."""
    keep.enqueue(number, n=[number])
    (lease,) = claim(worker=WORKER)
    (args, kwargs) = lease.arguments()
    assert (args, kwargs) == ([number], {"n": [number]})
    assert type(args[0]) is type(number)


TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.django_db
@hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(args=st.lists(VALUES, max_size=3), kwargs=st.dictionaries(TEXT, VALUES, max_size=3))
def test_what_is_accepted_round_trips_exactly(args: list[object], kwargs: dict[str, object]) -> None:
    keep.using(queue_name="reports").enqueue(*args, **kwargs)
    (lease,) = claim(worker=WORKER, queues=["reports"])
    assert lease.arguments() == (args, kwargs)
    assert complete(lease) == Verdict.ACCEPTED


# Names and keys


@pytest.mark.parametrize(
    "change",
    [
        lambda: keep.using(unique_key="k" * 256),
        lambda: keep.using(unique_key="k" * 3000),
        lambda: keep.using(unique_key=""),
        lambda: keep.using(unique_key="a\x00b"),
        lambda: keep.using(unique_key="\ud800"),
        lambda: keep.using(unique_key=5),
        lambda: keep.using(queue_name="q" * 300),
        lambda: keep.using(queue_name="q\x00"),
    ],
)
def test_names_that_a_column_or_an_index_cannot_hold_are_refused_before_sql(
    change: Callable[[], object], settings
) -> None:
    """Reports 99, 131 and 149."""
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": []}}
    with pytest.raises(InvalidTask, match="unique_key|queue_name"):  # without database access: no SQL at all
        change()


@pytest.mark.django_db
def test_the_longest_names_are_taken(settings) -> None:
    """Reports 131 and 149."""
    settings.TASKS = {"default": {**settings.TASKS["default"], "QUEUES": []}}
    key, queue = "ключ😀-" * 42, "очередь😀-" * 11
    result = keep.using(unique_key=key, queue_name=queue).enqueue()
    assert keep.using(unique_key=key, queue_name=queue).enqueue().id == result.id
    (lease,) = claim(worker=WORKER, queues=[queue])
    assert complete(lease) == Verdict.ACCEPTED

"""The enqueuer's hints: they cost it nothing, and polling finds what they miss."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, transaction

from django_pgqueue import hints, task
from django_pgqueue.models import Job
from testproject.shop.models import Order
from tests.races.tools import at_once, session

pytestmark = pytest.mark.django_db(transaction=True)

READY, SCHEDULED = "django_pgqueue_ready", "django_pgqueue_scheduled"
HOUR = timedelta(hours=1)


@task()
def nothing(text: str = "") -> None:
    """Do nothing."""


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Forget the hints of earlier tests: the throttle is the process's."""
    hints._sent_at.clear()


@pytest.fixture
def sent() -> Iterator[list[tuple[str, bool]]]:
    """Note each NOTIFY with whether it was sent inside a transaction."""
    notes: list[tuple[str, bool]] = []

    def watch(execute: Callable[..., Any], statement: Any, params: Any, many: bool, context: Any) -> Any:
        if "notify" in str(statement).lower() and "marker" not in str(statement):
            raw = context["connection"].connection
            inside = raw.info.transaction_status != psycopg.pq.TransactionStatus.IDLE
            notes.append((str(statement), inside or context["connection"].in_atomic_block))
        return execute(statement, params, many, context)

    with connection.execute_wrapper(watch):
        yield notes


@pytest.fixture
def heard() -> Iterator[Callable[[], list[tuple[str, str]]]]:
    """Listen, and give what has come so far: a marker of the test's own says that nothing is on its way any more."""
    with session("a listener") as listening:
        listening.autocommit = True
        for channel in (READY, SCHEDULED, "marker"):
            listening.execute(f"LISTEN {channel}")

        def so_far() -> list[tuple[str, str]]:
            with connection.cursor() as cursor:
                cursor.execute("NOTIFY marker")
            notes = []
            for note in listening.notifies(timeout=20):
                if note.channel == "marker":
                    return notes
                notes.append((note.channel, note.payload))
            raise AssertionError("the marker did not come")

        yield so_far


# The enqueuer's side


def test_a_hint_is_sent_after_the_commit_and_never_inside_the_transaction(sent, heard):
    with transaction.atomic():
        nothing.enqueue()
        nothing.using(run_after=HOUR).enqueue()
        assert sent == []
    assert sent == [(f"NOTIFY {READY}", False), (f"NOTIFY {SCHEDULED}", False)]
    assert heard() == [(READY, ""), (SCHEDULED, "")]


def test_without_a_transaction_it_follows_the_insert(sent, heard):
    nothing.enqueue()
    assert sent == [(f"NOTIFY {READY}", False)]
    assert heard() == [(READY, "")]


def test_what_is_rolled_back_sends_no_hint(sent, heard):
    with transaction.atomic():
        nothing.enqueue()
        transaction.set_rollback(True)
    with transaction.atomic():
        with transaction.atomic():
            nothing.enqueue()
            transaction.set_rollback(True)
        Order.objects.create(number="1", amount=1)
    assert (sent, heard()) == ([], [])
    nothing.enqueue()  # and it has not used up the throttle
    assert len(sent) == 1


def test_no_hint_carries_a_payload_however_large_the_job(sent):
    """Report 149."""
    nothing.enqueue("x" * 1_000_000)
    nothing.using(queue_name="reports").enqueue("ж" * 10_000)
    assert sent == [(f"NOTIFY {READY}", False)]


@pytest.mark.parametrize("inside", [True, False])
def test_a_hint_that_fails_fails_no_enqueue(inside, caplog):
    """Report 149."""
    tried = []

    def refuse(execute: Callable[..., Any], statement: Any, params: Any, many: bool, context: Any) -> Any:
        if str(statement).startswith("NOTIFY"):
            tried.append(statement)
            raise OperationalError("too many notifications in the queue")
        return execute(statement, params, many, context)

    with connection.execute_wrapper(refuse):
        if inside:
            with transaction.atomic():
                Order.objects.create(number="1", amount=1)
                result = nothing.enqueue()
        else:
            result = nothing.enqueue()
        assert Job.objects.get().pk == int(result.id)  # the connection works on
    assert len(tried) == 1
    assert Order.objects.count() == inside


def test_a_server_that_cannot_notify_at_all_takes_jobs(caplog):
    """As a standby that was just promoted behind a pooler may answer: the statement itself fails."""
    original = hints.CHANNELS.copy()
    hints.CHANNELS.update(dict.fromkeys(original, "1 is no name"))
    try:
        with transaction.atomic():
            nothing.enqueue()
        nothing.enqueue()
    finally:
        hints.CHANNELS.update(original)
    assert Job.objects.count() == 2


def test_hints_are_throttled_to_about_one_in_a_short_while(sent):
    began = time.monotonic()
    for _ in range(300):
        nothing.enqueue()
    seconds = time.monotonic() - began
    assert 1 <= len(sent) <= 1 + seconds / hints.QUIET_SECONDS
    threading.Event().wait(hints.QUIET_SECONDS)
    before = len(sent)
    nothing.enqueue()
    assert len(sent) == before + 1


def test_threads_of_a_process_share_the_throttle(heard):
    def many() -> float:
        began = time.monotonic()
        for _ in range(50):
            nothing.enqueue()
        return time.monotonic() - began

    seconds = max(at_once(*[many] * 4))
    assert 1 <= len(heard()) <= 1 + seconds / hints.QUIET_SECONDS + 1


def test_each_kind_of_job_has_a_throttle_of_its_own(sent):
    for _ in range(3):
        nothing.enqueue()
        nothing.using(run_after=HOUR).enqueue()
    assert {statement for statement, _ in sent} == {f"NOTIFY {READY}", f"NOTIFY {SCHEDULED}"}


def test_many_jobs_at_once_send_one_hint(sent):
    nothing.enqueue_many("text" for _ in range(5000))
    assert sent == [(f"NOTIFY {READY}", False)]


def test_a_duplicate_of_a_unique_job_sends_none(sent):
    nothing.using(unique_key="k").enqueue()
    hints._sent_at.clear()
    nothing.using(unique_key="k").enqueue()
    assert len(sent) == 1


def test_without_listen_nothing_is_sent(sent, settings):
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": {"LISTEN": False}}}
    nothing.enqueue()
    nothing.using(run_after=HOUR).enqueue()
    nothing.enqueue_many(["a", "b"])
    assert Job.objects.count() == 4
    assert sent == []


@pytest.mark.django_db(transaction=True)
def test_with_autocommit_off_a_job_is_enqueued_and_the_callers_commit_decides() -> None:
    """Django knows of no commit there, so no hint is sent; polling finds the job. Report 93."""
    connection.set_autocommit(False)
    try:
        nothing.enqueue()
        connection.rollback()
        nothing.enqueue()
        connection.commit()
    finally:
        connection.set_autocommit(True)
    assert Job.objects.count() == 1

"""Wake-up: hints that cost the enqueuer nothing, a listener that comes back, and jobs that start on time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.db import OperationalError, connection, transaction

from django_pgqueue import hints, task
from django_pgqueue.models import Job
from django_pgqueue.worker.listener import Listener
from testproject.shop.models import Order
from tests.processes.stage import Stage
from tests.processes.tasks import noop
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


def test_149_no_hint_carries_a_payload_however_large_the_job(sent):
    nothing.enqueue("x" * 1_000_000)
    nothing.using(queue_name="reports").enqueue("ж" * 10_000)
    assert sent == [(f"NOTIFY {READY}", False)]


@pytest.mark.parametrize("inside", [True, False])
def test_149_a_hint_that_fails_fails_no_enqueue(inside, caplog):
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


# The worker's side. Each waits for an idle worker, which polls ever less often: after some seconds, every some seconds.

IDLE_SECONDS = 3.0
QUICK_SECONDS = 1.0  # a few milliseconds on an idle machine


def pick_up_seconds(stage: Stage, job: int) -> float:
    row = stage.wait_state(job, "done")
    return (row["started_at"] - row["enqueued_at"]).total_seconds()


def be_idle(stage: Stage) -> None:
    stage.stays(lambda: stage.states().get("running") is None, IDLE_SECONDS, "the workers are idle")


def enqueued(**options: Any) -> int:
    hints._sent_at.clear()
    return int(noop.using(**options).enqueue().id)


def test_an_idle_worker_that_listens_is_quick_also_after_its_listener_was_lost(stage: Stage) -> None:
    worker = stage.worker("--interval", "30", "--lease", "120")
    stage.wait(lambda: len(stage.sessions(worker, "listener")) == 1, "it listens")
    be_idle(stage)
    assert pick_up_seconds(stage, enqueued()) < QUICK_SECONDS

    (before,) = stage.sessions(worker, "listener")
    stage.terminate(worker, "listener")
    stage.wait(
        lambda: [row["pid"] != before["pid"] for row in stage.sessions(worker, "listener")] == [True],
        "it listens again",
    )
    be_idle(stage)
    assert pick_up_seconds(stage, enqueued()) < QUICK_SECONDS
    assert worker.output.count("Listening failed") == 1
    worker.stop()
    assert worker.wait() == 0


def test_behind_a_pooler_the_listener_ends_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    """The process that a pooler's greeting names is not the one that answers."""
    caplog.set_level(logging.INFO, logger="django_pgqueue")
    woken: list[str] = []
    listener = Listener(using="default", name="a listener", wake={READY: lambda: woken.append(READY)})
    with mock.patch.object(psycopg.ConnectionInfo, "backend_pid", 1):
        thread = threading.Thread(target=listener.run, daemon=True)
        thread.start()
        thread.join(20)
    assert not thread.is_alive()
    assert "polling only" in caplog.text
    assert woken == []


def test_without_a_listener_or_without_a_hint_a_job_is_found_by_the_poll(stage: Stage) -> None:
    """One worker does not listen; the other does, and is sent no hint by plain SQL."""
    flags = ("--interval", "1", "--lease", "120", "--queue-name")
    deaf = stage.worker(*flags, "default", "--no-listen")
    listening = stage.worker(*flags, "reports")
    be_idle(stage)
    assert stage.sessions(deaf, "listener") == []
    by_deaf, by_listening = enqueued(), stage.enqueue("noop", queue="reports")
    assert pick_up_seconds(stage, by_deaf) < 1 + QUICK_SECONDS
    assert pick_up_seconds(stage, by_listening) < 1 + QUICK_SECONDS
    for worker in (deaf, listening):
        worker.stop()
    assert [deaf.wait(), listening.wait()] == [0, 0]


@pytest.mark.parametrize("listen", [True, False], ids=["listening", "polling"])
def test_scheduled_jobs_start_on_time_although_the_worker_polls_rarely(stage: Stage, listen: bool) -> None:
    """The poll comes every five seconds. A nearer job than the one that is waited for is not late either."""
    if not listen:  # it knows of what was there when it last looked
        jobs = [enqueued(run_after=timedelta(seconds=3 + step)) for step in (0, 0.3, 0.6)]
    worker = stage.worker("--interval", "5", "--lease", "120", *([] if listen else ["--no-listen"]))
    if listen:
        stage.wait(lambda: len(stage.sessions(worker, "listener")) == 1, "it listens")
        jobs = [enqueued(run_after=timedelta(seconds=seconds)) for seconds in (60, 3, 2, 1)][1:]
    late = []
    for job in jobs:
        row = stage.wait_state(job, "done")
        late.append((row["started_at"] - row["run_after"]).total_seconds())
    assert min(late) >= 0
    assert min(late) < 0.2, late
    assert max(late) < QUICK_SECONDS, late

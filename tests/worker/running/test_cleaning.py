"""Rooms of the worker on their own: what a job, a signal receiver or the order of things may not break."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.dispatch import Signal

from django_pgqueue import leases, task
from django_pgqueue.context import Holding
from django_pgqueue.models import Job, Rejection
from django_pgqueue.signals import tell
from django_pgqueue.worker.coroutines import Coroutines
from django_pgqueue.worker.hygiene import _SESSION, Hygiene
from django_pgqueue.worker.selection import Selection


@task
def nothing() -> None:
    """Do nothing."""


def claim_one() -> leases.Lease:
    (lease,) = leases.claim(worker="A")
    return lease


def hold(lease: leases.Lease) -> Holding:
    return Holding(lease, sent_at=0.0, stopping=threading.Event(), using="default")


# Queues


@pytest.mark.parametrize("looks_up_each_time", [True, False])
def test_no_queue_is_first_more_often_than_another(monkeypatch, looks_up_each_time: bool) -> None:
    """124, and the reports on starved queues: also where each claim looks the names up anew."""
    monkeypatch.setattr("django_pgqueue.worker.selection.CACHE_SECONDS", -1.0 if looks_up_each_time else 60.0)
    selection = Selection(None, frozenset(), look_up=lambda: ["a", "b", "c"])
    first = [selection.queues()[0] for _ in range(30)]
    assert {name: first.count(name) for name in "abc"} == {"a": 10, "b": 10, "c": 10}


def claimed_from(queue: str) -> leases.Lease:
    return leases.Lease(
        job_id=1, generation=1, attempt=1, max_attempts=1, task="t", queue=queue, priority=0, backend="default",
        payload="{}", worker="w", worker_ids=["w"], enqueued_at=datetime.now(UTC), started_at=None, claimed_at=None,
        duration=timedelta(seconds=30),
    )  # fmt: skip


def test_the_claim_after_a_hint_does_not_wait_for_the_names_of_the_queues_and_the_next_one_does() -> None:
    look_ups = []
    selection = Selection(None, frozenset(), look_up=lambda: look_ups.append(1) or ["a", "b"])
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


# Connections


@pytest.mark.parametrize(
    "statement",
    [
        "SET search_path TO elsewhere",
        "  /* why */ set role somebody",
        "SELECT 1; SET TIME ZONE 'UTC'",
        "RESET ALL",
        "CREATE TEMPORARY TABLE t (a int)",
        "CREATE TEMP TABLE t (a int)",
        "SELECT set_config('role', 'x', false)",
        "LISTEN something",
    ],
)
def test_a_statement_that_changes_the_session_is_noticed(statement: str) -> None:
    """133."""
    assert _SESSION.search(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE shop_order SET amount = 1",
        "SELECT payload FROM django_pgqueue_job LIMIT 1 OFFSET 20",
        "INSERT INTO t (a) VALUES (1)",
        'SELECT "reset" FROM t',
    ],
)
def test_an_ordinary_statement_costs_no_new_connection(statement: str) -> None:
    assert not _SESSION.search(statement)


@pytest.mark.parametrize("alias", ["default", "tenant"])
def test_the_first_connection_that_a_job_opens_is_cleaned_also_of_an_alias_that_it_made(
    alias: str, django_db_setup: None, django_db_blocker: Any
) -> None:
    """69: a transaction that a job leaves open does not stay."""
    left = []

    def body() -> None:
        hygiene = Hygiene(name="a job")
        hygiene.before()
        connections.databases[alias] = connections.databases["default"]
        connections[alias].set_autocommit(False)
        connections[alias].cursor().execute("SELECT 1")
        hygiene.after()
        left.append(connections[alias].connection)
        hygiene.close()

    known = set(connections.databases)
    try:
        with django_db_blocker.unblock():
            thread = threading.Thread(target=body)
            thread.start()
            thread.join(20)
    finally:
        for made in set(connections.databases) - known:
            del connections.databases[made]
    assert left == [None]


@pytest.mark.django_db(transaction=True)
def test_with_autocommit_off_a_job_is_enqueued_and_the_callers_commit_decides() -> None:
    """93: Django knows of no commit there, so no hint is sent; polling finds the job."""
    connection.set_autocommit(False)
    try:
        nothing.enqueue()
        connection.rollback()
        nothing.enqueue()
        connection.commit()
    finally:
        connection.set_autocommit(True)
    assert Job.objects.count() == 1


# Signals


def test_a_receiver_that_leaves_the_process_does_not() -> None:
    """138."""
    signal = Signal()

    def leave(sender: object, **kwargs: object) -> None:
        raise SystemExit(3)

    signal.connect(leave)
    tell(signal, None)


# Time limits


@pytest.mark.django_db(transaction=True)
def test_a_job_inside_its_own_completion_can_still_be_overdue() -> None:
    """135: the body of a transactional task is inside it."""
    from django_pgqueue.context.fence import completing

    nothing.enqueue()
    holding = hold(claim_one())
    holding.timeout, holding.started = 0.0, 0.0
    with completing(holding):
        assert holding.is_overdue
    assert not holding.is_overdue
    assert Job.objects.get().state == "done"


# Coroutines


def test_a_task_that_leaves_the_event_loop_does_not_end_it(caplog) -> None:
    """39: SystemExit in an asyncio task that a job created ends `run_forever`."""

    async def leave() -> None:
        raise SystemExit(3)

    async def run(holding: Holding) -> None:
        if holding.timeout:
            left = asyncio.get_running_loop().create_task(leave())
            await asyncio.sleep(0.05)
            assert isinstance(left.exception(), SystemExit)  # else asyncio logs it whenever it is collected

    now = claimed_from("q")
    coroutines = Coroutines(run=run)
    try:
        for leaves in (True, False):
            holding = hold(now)
            holding.timeout = 1.0 if leaves else None
            over = threading.Event()
            coroutines.take(holding, lambda ending, over=over: over.set())
            assert over.wait(10)
    finally:
        coroutines.stop(timeout=10)
    assert not [thread for thread in threading.enumerate() if thread.name == "pgqueue-coroutines"]
    assert "goes on" in caplog.text


# The ready rows that a hand has written


@pytest.mark.django_db
def test_a_ready_job_written_by_hand_for_later_waits_for_its_time() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_pgqueue_job (task, payload, run_after)"
            " VALUES ('x', '{}', now() + interval '1 hour'), ('y', '{}', now() - interval '1 hour')"
        )
    assert [lease.task for lease in leases.claim(worker="A", limit=5)] == ["y"]


@pytest.mark.django_db(transaction=True)
def test_a_rolled_back_caller_leaves_a_refusal_on_record() -> None:
    """27: the ledger is written in a transaction of its own."""
    nothing.enqueue()
    first = claim_one()
    Job.objects.update(lease_until="2020-01-01T00:00:00Z")
    leases.reclaim(worker="B")
    with transaction.atomic():
        assert leases.complete(first) == "superseded"
        transaction.set_rollback(True)
    assert Rejection.objects.get().action == "complete"


@pytest.mark.django_db(transaction=True)
def test_after_a_timeout_no_function_of_the_users_is_asked() -> None:
    """48: the loop decides there, and may not run a user's code."""
    from django_pgqueue import Backoff
    from django_pgqueue.conf import Options
    from django_pgqueue.worker.execution import Execution

    asked = []

    def policy(attempt: int, error: BaseException) -> timedelta:
        asked.append(attempt)
        return timedelta(days=1)

    nothing.enqueue()
    holding = hold(claim_one())
    holding.retry, holding.timeout = policy, 1.0
    backoff = Backoff(base=timedelta(seconds=7), jitter=0)
    execution = Execution(Options(backoff=backoff), adopted=lambda holding: None)
    assert execution.timed_out(holding).delay == timedelta(seconds=7)
    assert execution.crashed(holding, "gone").delay == timedelta(seconds=7)
    assert asked == []

"""What a job leaves on its connections, and what the next job finds there."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections, transaction

from django_pgqueue import Backoff, JobContext, task
from django_pgqueue.compat import TaskResultStatus
from django_pgqueue.worker.running.cleaning import _SESSION, Cleaning
from testproject.shop.models import Order
from tests.worker.batches import run_worker

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
    """Report 133."""
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
    """A transaction that a job leaves open does not stay. Report 69."""
    left = []

    def body() -> None:
        cleaning = Cleaning(name="a job")
        cleaning.before()
        connections.databases[alias] = connections.databases["default"]
        connections[alias].set_autocommit(False)
        connections[alias].cursor().execute("SELECT 1")
        cleaning.after()
        left.append(connections[alias].connection)
        cleaning.close()

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


AT_ONCE = Backoff(base=timedelta(0), cap=timedelta(0))


def _swallow_bad_sql() -> None:
    with transaction.atomic():
        try:
            Order.objects.raw("SELECT nonsense")[0]
        except Exception:
            return


def _leave_aborted_transaction() -> None:
    transaction.set_autocommit(False)
    try:
        connection.cursor().execute("SELECT nonsense")
    except Exception:
        return


def _leave_transaction_open() -> None:
    transaction.set_autocommit(False)
    Order.objects.create(number="never committed", amount=1)


def _leave_atomic_block_open() -> None:
    transaction.atomic().__enter__()
    Order.objects.create(number="in a block", amount=1)


def _close() -> None:
    connection.close()


def _close_the_socket() -> None:
    connection.ensure_connection()
    connection.connection.close()


def _terminate() -> None:
    try:
        connection.cursor().execute("SELECT pg_terminate_backend(pg_backend_pid())")
    except Exception:
        return


DAMAGE = {
    damage.__name__: damage
    for damage in (
        _swallow_bad_sql,
        _leave_aborted_transaction,
        _leave_transaction_open,
        _leave_atomic_block_open,
        _close,
        _close_the_socket,
        _terminate,
    )
}


@task(max_attempts=2, retry=AT_ONCE, takes_context=True)
def damage_and_fail(context: JobContext, name: str) -> None:
    DAMAGE[name]()
    raise ValueError(f"attempt {context.attempt}")


@task
def count_orders() -> int:
    return Order.objects.count()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_connection_costs_its_job_an_attempt_and_the_next_job_nothing(name: str) -> None:
    """Report 35."""
    bad, good = damage_and_fail.using(priority=1).enqueue(name), count_orders.enqueue()
    run_worker("--concurrency", "1")
    for result in (bad, good):
        result.refresh()
    assert (bad.status, bad.attempts) == (TaskResultStatus.FAILED, 2)
    assert ["attempt 1" in bad.errors[0].traceback, "attempt 2" in bad.errors[1].traceback] == [True, True]
    assert good.return_value == 0

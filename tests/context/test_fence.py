"""`with context.fence()`: the block's writes commit only if their writer still owns the job."""

import contextlib
import logging
from datetime import timedelta

import pytest
from django.db import DatabaseError, connection, transaction

from django_pgqueue import LeaseLost, leases, outcomes
from django_pgqueue.exceptions import ForeignWrite
from django_pgqueue.lab.waiting import until
from django_pgqueue.models import Job, Rejection
from testproject.shop.models import Order
from tests.context.holding import MOVES, context_of
from tests.races.tools import (
    PATIENCE,
    InThread,
    claim_one,
    expire,
    new_job,
    only_rejection,
    reclaimed,
    row,
)

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

BLOCKS = ("fence", "complete")
both_blocks = pytest.mark.parametrize("block", BLOCKS)


@pytest.fixture
def context():
    new_job()
    return context_of(claim_one("A"))


def write(number="1", using="default"):
    Order.objects.using(using).create(number=number, customer="c", email="c@example.com", amount=1)


def numbers(using="default"):
    return set(Order.objects.using(using).values_list("number", flat=True))


class Stopped(Exception):
    """What a block raises on its own account."""


@both_blocks
def test_the_owners_block_commits(block, context):
    with getattr(context, block)():
        write()
    assert numbers() == {"1"}
    assert row(context.job_id).state == ("done" if block == "complete" else "running")
    assert not Rejection.objects.exists()


@both_blocks
@pytest.mark.parametrize("move", MOVES)
def test_the_block_of_a_worker_whose_job_has_moved_on_is_not_even_entered(block, move, context):
    """The write is refused, says why, and leaves exactly one record of it. Report 27."""
    moved, verdict = MOVES[move]
    moved(context.holding.lease)
    before = list(Job.objects.values())
    with pytest.raises(LeaseLost) as caught, getattr(context, block)():
        pytest.fail("the block was entered")
    assert (caught.value.job_id, caught.value.generation, caught.value.verdict) == (
        context.job_id,
        1,
        verdict,
    )
    assert list(Job.objects.values()) == before
    rejection = only_rejection(context.job_id)
    assert (rejection.action, rejection.verdict, rejection.worker) == (block, verdict, "A")
    assert context.lease_lost


@both_blocks
def test_a_refused_blocks_rejection_outlives_the_callers_rollback_and_takes_the_callers_writes_along(
    block, context
):
    reclaimed(context.holding.lease)
    with pytest.raises(LeaseLost), transaction.atomic():
        write("before")
        with getattr(context, block)():
            write("inside")
    assert numbers() == set()
    assert only_rejection(context.job_id).action == block


@both_blocks
def test_a_caller_that_catches_the_refusal_keeps_its_own_transaction(block, context):
    reclaimed(context.holding.lease)
    with transaction.atomic():
        write("before")
        with pytest.raises(LeaseLost), getattr(context, block)():
            write("inside")
        write("after")
    assert numbers() == {"before", "after"}
    assert only_rejection(context.job_id).action == block


@both_blocks
def test_a_block_that_raises_leaves_nothing_and_the_job_as_it_was(block, context):
    with pytest.raises(Stopped), getattr(context, block)():
        write()
        raise Stopped
    assert numbers() == set()
    assert row(context.job_id).state == "running"
    assert not Rejection.objects.exists()
    with context.complete():  # nothing is spoilt by it
        write("2")
    assert numbers() == {"2"}


@both_blocks
def test_a_block_with_a_swallowed_database_error_commits_nothing(block, context):
    with pytest.raises(DatabaseError), getattr(context, block)():
        write()
        with connection.cursor() as cursor, contextlib.suppress(DatabaseError):
            cursor.execute("SELECT 1/0")
        write("2")
    assert numbers() == set()
    assert row(context.job_id).state == "running"


@both_blocks
def test_nobody_reclaims_a_job_while_its_fence_is_held_however_expired_its_lease_is(block, context):
    with getattr(context, block)():
        write()
        InThread(lambda: expire_skipped(context.job_id)).result()
        assert InThread(lambda: leases.reclaim(worker="B")).result() == []
    assert numbers() == {"1"}
    assert not Rejection.objects.exists()


def expire_skipped(job_id):
    """Show that the row is locked: an UPDATE of it would wait."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT id FROM django_pgqueue_job WHERE id = %s FOR UPDATE SKIP LOCKED", [job_id])
        assert cursor.fetchall() == []


def test_an_expired_lease_that_nobody_reclaimed_still_writes_under_token_fencing(context):
    expire(context.job_id)
    with context.fence():
        write()
    with context.complete():
        write("2")
    assert numbers() == {"1", "2"}
    assert row(context.job_id).state == "done"


@both_blocks
def test_strict_fencing_refuses_an_expired_lease_although_nobody_reclaimed_it(block, context):
    context = context_of(context.holding.lease._replace(fencing="strict"))
    with context.fence():
        write()
    expire(context.job_id)
    with pytest.raises(LeaseLost) as caught, getattr(context, block)():
        write("2")
    assert caught.value.verdict == "expired"
    assert numbers() == {"1"}
    assert row(context.job_id).state == "running"
    assert (only_rejection(context.job_id).action, only_rejection(context.job_id).verdict) == (
        block,
        "expired",
    )


def test_strict_fencing_refuses_a_completion_whose_lease_ran_out_inside_its_block():
    """The block itself holds the row, so no heartbeat can renew it; its writes go with the refusal."""
    new_job()
    lease = claim_one("A", lease=timedelta(seconds=0.2))._replace(fencing="strict")
    context = context_of(lease)
    with pytest.raises(LeaseLost) as caught, context.complete():
        write()
        until(lambda: is_over(context.job_id), "the lease has run out", within=PATIENCE)
    assert caught.value.verdict == "expired"
    assert numbers() == set()
    assert row(context.job_id).state == "running"
    assert (only_rejection(context.job_id).action, only_rejection(context.job_id).verdict) == (
        "complete",
        "expired",
    )
    assert context.holding.run.completed is False


def is_over(job_id):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT lease_until < clock_timestamp() FROM django_pgqueue_job WHERE id = %s", [job_id]
        )
        return cursor.fetchone()[0]


def test_a_fence_may_stand_in_another_and_in_a_completion(context):
    with context.complete({"ok": True}):
        with context.fence():
            write("1")
            with context.fence():
                write("2")
        with pytest.raises(Stopped), context.fence():
            write("3")
            raise Stopped
    assert numbers() == {"1", "2"}
    assert row(context.job_id).result == {"ok": True}


def test_a_refusal_is_one_warning_line_without_a_traceback(context, caplog):
    reclaimed(context.holding.lease)
    with caplog.at_level(logging.DEBUG, "django_pgqueue"), pytest.raises(LeaseLost), context.fence():
        pass
    (record,) = [item for item in caplog.records if item.name == "django_pgqueue"]
    assert (record.levelname, record.exc_info, record.event) == ("WARNING", None, "rejected")
    assert "\n" not in record.getMessage()


# Other databases


@both_blocks
def test_a_write_to_another_database_is_an_error_that_names_both_and_rolls_the_block_back(block, context):
    with pytest.raises(ForeignWrite, match=r"'other'.*queue is in 'default'"), getattr(context, block)():
        write()
        write("2", using="other")
    assert numbers() == numbers("other") == set()
    assert row(context.job_id).state == "running"
    write("3", using="other")  # outside the block it is nobody's business
    assert numbers("other") == {"3"}


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO shop_order (number) VALUES ('x')",
        "  \n update shop_order SET number = 'x'",
        "WITH x AS (DELETE FROM shop_order RETURNING 1) SELECT * FROM x",
        "SELECT id FROM shop_order FOR UPDATE",
        "SELECT id FROM shop_order FOR NO KEY UPDATE",
        "TRUNCATE shop_order CASCADE",
        "EXPLAIN ANALYZE DELETE FROM shop_order",
        "/* a comment */ DELETE FROM shop_order",
        "SAVEPOINT s",
    ],
)
def test_whatever_could_write_to_another_database_is_refused_before_it_is_sent(statement, context):
    from django.db import connections

    with pytest.raises(ForeignWrite), context.fence(), connections["other"].cursor() as cursor:
        cursor.execute(statement)


def test_reads_of_another_database_are_allowed(context):
    write("far", using="other")
    with context.complete():
        write(Order.objects.using("other").get().number)
    assert numbers() == {"far"}


def test_a_queue_on_another_alias_fences_that_alias_and_refuses_the_default_one():
    job_id = Job.objects.using("other").create(task="shop.tasks.nothing").pk
    (lease,) = leases.claim(worker="A", using="other")
    context = context_of(lease, using="other")
    with pytest.raises(ForeignWrite, match=r"'default'.*queue is in 'other'"), context.fence():
        write()
    with context.complete():
        write("2", using="other")
    assert (numbers(), numbers("other")) == (set(), {"2"})
    assert Job.objects.using("other").get(pk=job_id).state == "done"


# The heartbeat beside it


def test_outcomes_written_around_the_fence_by_the_worker_are_what_the_row_says(context):
    """A job that fenced some writes and then failed keeps them, and fails."""
    with context.fence():
        write()
    outcomes.fail(context.holding.lease, ValueError("later"))
    assert numbers() == {"1"}
    assert row(context.job_id).state == "failed"

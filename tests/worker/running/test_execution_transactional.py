"""`@task(transactional=True)`: the whole body and the fenced completion are one transaction."""

import contextlib
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import connection, transaction

from django_pgqueue import Backoff, leases, task
from django_pgqueue.conf import Options
from django_pgqueue.holding import Holding
from django_pgqueue.models import Failure, Job, Rejection
from django_pgqueue.worker.running.execution import Execution
from testproject.shop.models import Order
from tests.context.holding import bad_line, holding_of
from tests.races.tools import InThread, claim_one, expire, new_job, only_rejection, row

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

AT_ONCE = Backoff(base=timedelta(0), cap=timedelta(0))


def write(number):
    Order.objects.create(number=number, customer="c", email="c@example.com", amount=1)


def numbers():
    return set(Order.objects.values_list("number", flat=True))


@task(transactional=True)
def charge(number):
    write(number)
    return {"charged": number}


@task(transactional=True, takes_context=True, max_attempts=2, retry=AT_ONCE)
def charge_and_fail_first(context, number):
    write(f"{number}-{context.attempt}")
    if context.attempt == 1:
        raise LookupError("half way")


@task(transactional=True, max_attempts=1)
def charge_and_return_something_else(number):
    write(number)
    return object()


@task(transactional=True, max_attempts=1)
def charge_and_swallow_an_error(number):
    write(number)
    with connection.cursor() as cursor, contextlib.suppress(Exception):
        cursor.execute("SELECT 1/0")
    return "never"


@task(transactional=True, takes_context=True, max_attempts=1)
def charge_and_complete(context, number):
    write(number)
    with context.complete():
        write(f"{number}-too")


@task(transactional=True, takes_context=True)
def charge_and_fence(context, number):
    with context.fence():
        write(number)
    context.check()
    return connection.in_atomic_block


@task(transactional=True)
async def acharge(number):
    await Order.objects.acreate(number=number, customer="c", email="c@example.com", amount=1)
    return number


@task(transactional=True, max_attempts=1)
async def acharge_and_fail(number):
    await Order.objects.acreate(number=number, customer="c", email="c@example.com", amount=1)
    raise LookupError("half way")


def work():
    call_command("runworker", "--batch", verbosity=0)


def run(holding: Holding):
    return Execution(Options(), on_options=lambda _: None).run(holding)


@pytest.mark.parametrize("one", [charge, acharge], ids=["sync", "async"])
def test_the_bodys_writes_and_the_end_of_the_job_commit_together(one):
    job_id = int(one.enqueue("1").id)
    work()
    assert (row(job_id).state, numbers()) == ("done", {"1"})
    assert row(job_id).result == ("1" if one is acharge else {"charged": "1"})
    assert not Rejection.objects.exists()


def test_an_error_rolls_the_whole_body_back_and_the_next_attempt_starts_from_nothing():
    job_id = int(charge_and_fail_first.enqueue("1").id)
    work()
    assert (row(job_id).state, row(job_id).attempts, numbers()) == ("done", 2, {"1-2"})
    assert Failure.objects.get().exception_class == "builtins.LookupError"


@pytest.mark.parametrize(
    "one",
    [charge_and_return_something_else, charge_and_swallow_an_error, acharge_and_fail, charge_and_complete],
    ids=["unserialisable result", "aborted transaction", "async", "complete() inside"],
)
def test_however_the_body_fails_no_business_row_is_left(one):
    job_id = int(one.enqueue("1").id)
    work()
    assert (row(job_id).state, numbers()) == ("failed", set())
    assert Failure.objects.get().kind == "error"


def test_a_fence_inside_is_part_of_the_same_transaction():
    job_id = int(charge_and_fence.enqueue("1").id)
    work()
    assert (row(job_id).result, numbers()) == (True, {"1"})


def test_a_body_whose_job_has_moved_on_is_not_run_and_leaves_one_record():
    charge.enqueue("1")
    holding = holding_of(claim_one("A"))
    expire(holding.lease.job_id)
    assert leases.reclaim(worker="B")
    assert run(holding) is None  # refused and recorded: nothing is left to end
    assert numbers() == set()
    rejection = only_rejection(holding.lease.job_id)
    assert (rejection.action, rejection.verdict) == ("complete", "superseded")


def test_nobody_reclaims_a_job_while_its_transactional_body_runs():
    job_id = int(charge.enqueue("1").id)
    holding = holding_of(claim_one("A", lease=timedelta(milliseconds=1)))
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=job_id)
        assert InThread(lambda: leases.reclaim(worker="B")).result() == []
    assert run(holding) is not None
    assert (row(job_id).state, row(job_id).generation, numbers()) == ("done", 1, {"1"})


def test_a_commit_whose_reply_was_lost_is_settled_by_reading_the_row():
    job_id = int(charge.enqueue("1").id)
    holding = holding_of(claim_one("A"))
    with bad_line(at="reply") as trap:
        ending = run(holding)
        assert trap.caught.is_set()
    assert ending is not None
    assert ending.error is None
    assert (row(job_id).state, numbers()) == ("done", {"1"})
    assert not Rejection.objects.exists()


def test_a_commit_that_never_reached_the_server_is_an_error_of_the_attempt():
    job_id = int(charge.enqueue("1").id)
    holding = holding_of(claim_one("A"))
    with bad_line(at="request") as trap:
        ending = run(holding)
        assert trap.caught.is_set()
    assert ending is not None
    assert ending.error is not None
    assert "OperationalError" in ending.error.exception_class
    assert (row(job_id).state, numbers()) == ("running", set())


def test_a_job_without_the_option_has_no_transaction_around_it():
    job_id = new_job(task=f"{__name__}.report_transaction")
    work()
    assert row(job_id).result is False


@task()
def report_transaction():
    return connection.in_atomic_block

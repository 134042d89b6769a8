"""The same fence in async tasks: `async with`, `aonce`."""

import asyncio

import pytest
from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async
from django.db import connections

from django_pgqueue import LeaseLost, leases
from django_pgqueue.connections import close_all
from django_pgqueue.exceptions import ForeignWrite
from django_pgqueue.models import Rejection
from testproject.shop.models import Order
from tests.context.holding import MOVES, context_of
from tests.races.tools import claim_one, new_job, new_jobs, only_rejection, row

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

both_blocks = pytest.mark.parametrize("block", ["fence", "complete"])


@pytest.fixture
def context():
    new_job()
    return context_of(claim_one("A"))


async def write(number="1", using="default"):
    await Order.objects.using(using).acreate(number=number, customer="c", email="c@example.com", amount=1)


def numbers():
    return set(Order.objects.values_list("number", flat=True))


@both_blocks
def test_the_owners_block_commits(block, context):
    @async_to_sync
    async def body():
        async with getattr(context, block)():
            await write()

    body()
    assert numbers() == {"1"}
    assert row(context.job_id).state == ("done" if block == "complete" else "running")


def test_the_result_is_set_on_what_the_completion_yields(context):
    @async_to_sync
    async def body():
        async with context.complete() as completion:
            completion.result = [1, 2]

    body()
    assert row(context.job_id).result == [1, 2]
    assert context.holding.run.completed


@both_blocks
@pytest.mark.parametrize("move", MOVES)
def test_the_block_of_a_worker_whose_job_has_moved_on_is_not_entered(block, move, context):
    moved, verdict = MOVES[move]
    moved(context.holding.lease)

    @async_to_sync
    async def body():
        async with getattr(context, block)():
            pytest.fail("the block was entered")

    with pytest.raises(LeaseLost) as caught:
        body()
    assert caught.value.verdict == verdict
    assert (only_rejection(context.job_id).action, only_rejection(context.job_id).verdict) == (block, verdict)


@both_blocks
def test_a_block_that_raises_leaves_nothing(block, context):
    @async_to_sync
    async def body():
        async with getattr(context, block)():
            await write()
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        body()
    assert numbers() == set()
    assert row(context.job_id).state == "running"
    assert not Rejection.objects.exists()


def test_a_write_to_another_database_is_an_error(context):
    @async_to_sync
    async def body():
        async with context.fence():
            await write()
            await write("2", using="other")

    with pytest.raises(ForeignWrite):
        body()
    assert numbers() == set()


def test_two_jobs_of_one_event_loop_do_not_share_a_transaction():
    """Both are inside their blocks at once; one rolls back, the other commits."""
    new_jobs(2)
    good, bad = (context_of(lease) for lease in leases.claim(worker="A", limit=2))

    async def job(context, number, both_inside, fails):
        async with ThreadSensitiveContext():
            try:
                async with context.complete(number):
                    await write(number)
                    await asyncio.wait_for(both_inside.wait(), 20)
                    if fails:
                        raise ZeroDivisionError
            finally:
                await sync_to_async(close_all)()

    async def body():
        both_inside = asyncio.Barrier(2)
        return await asyncio.gather(
            job(good, "good", both_inside, fails=False),
            job(bad, "bad", both_inside, fails=True),
            return_exceptions=True,
        )

    replies = asyncio.run(body())  # as in a worker: there is no thread above that asked for it
    assert [type(reply) for reply in replies] == [type(None), ZeroDivisionError]
    assert numbers() == {"good"}
    assert (row(good.job_id).state, row(bad.job_id).state) == ("done", "running")
    assert connections["default"].in_atomic_block is False

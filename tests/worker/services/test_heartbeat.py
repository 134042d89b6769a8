"""The heartbeat beside the job: it waits for nobody, and a refused one is told once."""

from datetime import timedelta

import pytest

from django_pgqueue import leases
from django_pgqueue.lab.waiting import until
from django_pgqueue.models import Job, Rejection
from testproject.shop.models import Order
from tests.context.holding import beating, context_of
from tests.races.tools import (
    PATIENCE,
    InThread,
    claim_one,
    new_job,
    new_jobs,
    row,
    session,
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


@both_blocks
def test_a_heartbeat_that_meets_its_own_jobs_fence_neither_waits_nor_declares_it_lost(block):
    """The fence is held for two leases; another lease of the same worker is renewed all the while."""
    lease_time = timedelta(seconds=0.4)
    new_jobs(2)
    fenced, other = (context_of(lease) for lease in leases.claim(worker="A", limit=2, lease=lease_time))
    beats, longest = [], 0.0
    with beating(fenced.holding, other.holding) as heart:
        with getattr(fenced, block)():
            write()
            first = InThread(lambda: row(other.job_id).lease_until).result()

            def two_leases_later() -> bool:
                nonlocal longest
                beats.append(fenced.holding.trust.deadline)
                assert not fenced.lease_lost
                assert not other.lease_lost
                return other_session_sees(other.job_id) - first > 2 * lease_time

            until(two_leases_later, "the other lease was renewed for two leases", within=PATIENCE)
            assert beats[-1] > beats[0]  # "busy" is news of the job too
        assert heart.service.busy_since is None or not fenced.lease_lost
        if block == "fence":
            fenced.check()
            renewed = row(fenced.job_id).lease_until
            until(lambda: row(fenced.job_id).lease_until > renewed, "it is renewed again", within=PATIENCE)
            with fenced.complete():
                pass
    assert row(fenced.job_id).state == "done"
    assert numbers() == {"1"}
    assert not Rejection.objects.exists()


def other_session_sees(job_id):
    with session() as second:
        return second.execute(
            "SELECT lease_until FROM django_pgqueue_job WHERE id = %s", [job_id]
        ).fetchone()[0]


def test_a_heartbeat_leaves_no_rejection_for_jobs_that_complete_themselves():
    """Beats fall before, into and after the completions' commits."""
    new_jobs(60)
    contexts = [context_of(lease) for lease in leases.claim(worker="A", limit=60)]
    with beating(*[context.holding for context in contexts], beat_seconds=0.001):
        for number, context in enumerate(contexts):
            with context.complete():
                write(str(number))
    assert {job.state for job in Job.objects.all()} == {"done"}
    assert not Rejection.objects.exists()
    assert [context.holding.trust.lost for context in contexts] == [False] * 60

"""A heartbeat waits for nobody, and tells "busy" from "lost"."""

import pytest
from django.db import connection, transaction

from django_pgqueue import leases, outcomes
from django_pgqueue.models import Rejection
from django_pgqueue.states import Verdict
from tests.races.tools import InThread, claim_one, expire, new_job, new_jobs, reclaimed, row, session

pytestmark = pytest.mark.django_db(transaction=True)

LOCK = "SELECT id FROM django_pgqueue_job WHERE id = %s FOR UPDATE"


@pytest.fixture
def impatient():
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '1s'")
    yield
    with connection.cursor() as cursor:
        cursor.execute("RESET lock_timeout")


def test_a_row_that_somebody_holds_is_busy_and_the_others_of_the_round_are_renewed(impatient):
    """Beats do not pile up behind a lock, and a locked row is not a lost one. Report 19."""
    job_ids = new_jobs(3)
    held = leases.claim(worker="A", limit=3)
    with session() as other:
        other.execute(LOCK, [job_ids[1]])
        reply = leases.renew(held)
    assert reply.renewed == {(job_ids[0], 1), (job_ids[2], 1)}
    assert reply.busy == {(job_ids[1], 1)}
    assert reply.lost == ()
    assert not Rejection.objects.exists()
    assert leases.renew(held).renewed == {lease.key for lease in held}


def test_a_locked_row_that_was_reclaimed_is_lost_not_busy(impatient):
    """On return from the lock the old worker learns that it has lost the row. Report 19."""
    new_job()
    lease = claim_one("A")
    newer = reclaimed(lease)
    with session() as other:
        other.execute(LOCK, [lease.job_id])
        reply = leases.renew([lease, newer])
    assert [(item.generation, item.verdict) for item in reply.lost] == [(1, Verdict.SUPERSEDED)]
    assert reply.busy == {newer.key}


def test_a_heartbeat_during_an_uncommitted_reclaim_is_busy_and_after_the_commit_lost(impatient):
    new_job()
    lease = claim_one("A")
    expire(lease.job_id)
    with transaction.atomic():
        leases.reclaim(worker="B")
        reply = InThread(lambda: leases.renew([lease])).result()
        assert (reply.busy, reply.lost) == ({lease.key}, ())
    assert leases.renew([lease]).lost[0].verdict == Verdict.SUPERSEDED


def test_a_heartbeat_while_the_job_s_own_completion_is_uncommitted_is_busy_then_not_running(impatient):
    new_job()
    lease = claim_one("A")
    with transaction.atomic():
        outcomes.complete(lease)
        assert InThread(lambda: leases.renew([lease])).result().busy == {lease.key}
    assert leases.renew([lease]).lost[0].verdict == Verdict.NOT_RUNNING


def test_an_expired_lease_that_nobody_reclaimed_is_revived_by_its_heartbeat():
    """A host that slept renews if the generation is unchanged. Report 150."""
    new_job()
    lease = claim_one("A")
    expire(lease.job_id)
    assert leases.renew([lease]).renewed == {lease.key}
    assert leases.reclaim(worker="B") == []
    assert row(lease.job_id).attempts == 1

"""Two sessions after one job: SKIP LOCKED, rollback, cancellation, and many threads."""

from collections import Counter

import psycopg
import pytest
from django.db import connection, transaction
from django.db.utils import OperationalError

from django_pgqueue import leases, outcomes
from django_pgqueue.models import Failure, Job, Rejection
from django_pgqueue.states import Verdict
from django_pgqueue.upkeep import promote
from tests.races.tools import (
    InThread,
    at_once,
    claim_one,
    end_batch,
    expire,
    new_job,
    new_jobs,
    row,
    session,
    wait_until_blocked,
)

pytestmark = pytest.mark.django_db(transaction=True)

LOCK = "SELECT id FROM django_pgqueue_job WHERE id = %s FOR UPDATE"


def test_while_job_1_is_locked_another_session_claims_job_2_and_job_1_after_the_rollback():
    first, second = new_jobs(2)
    with session("locker") as locker:
        locker.execute(LOCK, [first])

        lease = claim_one()
        assert (lease.job_id, lease.generation) == (second, 1)
        assert leases.claim(worker="A") == []

        locker.rollback()
        lease = claim_one()
        assert (lease.job_id, lease.generation) == (first, 1)


def test_a_locked_candidate_is_skipped_again_and_again_so_order_is_no_promise():
    first, *others = new_jobs(4)
    with session("locker") as locker:
        locker.execute(LOCK, [first])
        assert [claim_one().job_id for _ in others] == others


def test_a_claim_that_is_rolled_back_leaves_the_generation_and_the_job_claimable():
    job_id = new_job()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        assert claim_one("A").generation == 1
        raise ZeroDivisionError

    job = row(job_id)
    assert (job.state, job.generation, job.attempts, job.worker_ids) == ("ready", 0, 0, [])
    assert job.lease_until is job.started_at is job.last_attempted_at is None
    lease = claim_one("B")
    assert (lease.job_id, lease.generation, lease.worker_ids) == (job_id, 1, ["B"])


def test_while_a_claim_is_not_committed_nobody_else_gets_the_job():
    job_id = new_job()
    with transaction.atomic():
        assert claim_one("A").job_id == job_id
        assert InThread(lambda: leases.claim(worker="B")).result() == []
        assert InThread(lambda: leases.reclaim(worker="B")).result() == []
    assert InThread(lambda: leases.claim(worker="B")).result() == []


def test_a_reclaim_that_is_rolled_back_records_no_failure():
    job_id = new_job()
    claim_one()
    expire(job_id)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        assert leases.reclaim(worker="B")[0].generation == 2
        raise ZeroDivisionError
    assert not Failure.objects.exists()
    assert row(job_id).generation == 1
    assert leases.reclaim(worker="C")[0].generation == 2


@pytest.mark.parametrize("end_session", ["pg_cancel_backend(%s)", "pg_terminate_backend(%s, 10000)"])
def test_a_session_cancelled_while_it_holds_a_candidate_frees_it_for_another(end_session):
    job_id = new_job()

    def claim_and_hang():
        try:
            with transaction.atomic():
                held.append(claim_one("A"))
                with connection.cursor() as cursor:
                    cursor.execute("SELECT pg_advisory_lock(1)")  # stands for a claim that hangs
        except OperationalError as error:
            return type(error.__cause__)

    held = []
    with session("gatekeeper") as gatekeeper:
        gatekeeper.execute("SELECT pg_advisory_lock(1)")
        claimer = InThread(claim_and_hang)
        wait_until_blocked(claimer.pid)
        assert [lease.job_id for lease in held] == [job_id]
        assert leases.claim(worker="B") == []

        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {end_session}", [claimer.pid])
        ended = claimer.result()
        gatekeeper.execute("SELECT pg_advisory_unlock(1)")

    assert issubclass(ended, psycopg.OperationalError)
    lease = claim_one("B")
    assert (lease.job_id, lease.generation, lease.worker_ids) == (job_id, 1, ["B"])


def test_two_reclaimers_at_once_get_each_expired_job_once():
    job_ids = new_jobs(40)
    leases.claim(worker="A", limit=40)
    expire(*job_ids)
    taken = at_once(*[lambda: leases.reclaim(worker="B", limit=25) for _ in range(3)])
    keys = [lease.key for batch in taken for lease in batch]
    assert sorted(keys) == [(job_id, 2) for job_id in job_ids]
    assert Failure.objects.filter(kind="lease_expired", generation=1).count() == 40


def test_a_lease_that_its_owner_is_just_renewing_is_not_reclaimed():
    """The reclaimer skips the locked row, and after the renewal's commit the lease is not expired."""
    job_id = new_job()
    lease = claim_one()
    expire(job_id)
    with transaction.atomic():
        assert leases.renew([lease]).renewed == {lease.key}
        assert InThread(lambda: leases.reclaim(worker="B")).result() == []
    assert leases.reclaim(worker="B") == []


def test_a_due_job_is_promoted_by_one_of_several_promoters():
    """Two promoters at once share the due jobs, and no error comes of it. Report 37."""
    new_jobs(300, state="scheduled")
    assert sum(at_once(*[lambda: promote(limit=200) for _ in range(3)])) == 300
    assert not Job.objects.exclude(state="ready").exists()


def test_eight_threads_on_2000_jobs_start_each_generation_of_a_job_exactly_once():
    """Every (job, generation) has one start, and attempts add up with what was given back.

    Reports 25 and 47.
    """
    job_ids = new_jobs(2000)

    def work():
        started = []
        while batch := leases.claim(worker="w", limit=16):
            started += [lease.key for lease in batch]
            # Every third first run is given back, so that generations and attempts part ways.
            back = [item for item in batch if item.job_id % 3 == 0 and item.generation == 1]
            done = [outcomes.Ending.done(item) for item in batch if item not in back]
            replies = end_batch([outcomes.Ending.released(item) for item in back] + done)
            assert {reply.verdict for reply in replies} == {Verdict.ACCEPTED}
        return started

    starts = Counter(key for started in at_once(*[work] * 8) for key in started)

    given_back = {job_id for job_id in job_ids if job_id % 3 == 0}
    assert set(starts.values()) == {1}
    assert set(starts) == {(job_id, 1) for job_id in job_ids} | {(job_id, 2) for job_id in given_back}
    rows = Job.objects.values_list("id", "state", "generation", "attempts")
    assert set(rows) == {(job_id, "done", 2 if job_id in given_back else 1, 1) for job_id in job_ids}
    assert not Rejection.objects.exists()


def test_a_claim_waits_for_no_lock_at_all():
    """Neither a row lock of each strength nor a heartbeat's makes a claim wait."""
    job_ids = new_jobs(4)
    with session("locker") as locker:
        for job_id, strength in zip(job_ids, ("UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"), strict=True):
            locker.execute(f"SELECT id FROM django_pgqueue_job WHERE id = %s FOR {strength}", [job_id])
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '1s'")
        try:
            assert leases.claim(worker="A", limit=4) == []
        finally:
            with connection.cursor() as cursor:
                cursor.execute("RESET lock_timeout")
    assert len(leases.claim(worker="A", limit=4)) == 4

"""What a running job can ask of its context: who it is, and whether it still owns itself."""

import time
from datetime import timedelta

import pytest

from django_pgqueue import JobCancelled, LeaseLost, leases, outcomes
from django_pgqueue.lab.waiting import until
from django_pgqueue.models import Job, Rejection
from tests.context.holding import beating, context_of
from tests.races.tools import PATIENCE, claim_one, new_job, reclaimed, row

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


def key_of(lease):
    return context_of(lease).idempotency_key


def test_a_context_says_which_job_which_claim_and_which_run_this_is():
    job_id = new_job()
    first = context_of(claim_one())
    assert (first.job_id, first.generation, first.attempt) == (job_id, 1, 1)
    second = context_of(reclaimed(first.holding.lease))
    assert (second.job_id, second.generation, second.attempt) == (job_id, 2, 2)
    outcomes.release(second.holding.lease)
    third = context_of(claim_one())
    assert (third.generation, third.attempt) == (3, 2)  # the run that was given back does not count


def test_the_idempotency_key_is_the_same_on_every_attempt_and_after_an_operators_retry():
    new_job()
    lease = claim_one("A")
    keys = {key_of(lease)}
    lease = reclaimed(lease, "B")
    keys.add(key_of(lease))
    outcomes.fail(lease, ValueError(), delay=timedelta(0))
    lease = claim_one("C")
    keys.add(key_of(lease))
    outcomes.complete(lease)
    outcomes.retry(lease.job_id)
    keys.add(key_of(claim_one("D")))
    assert len(keys) == 1


def test_another_job_with_the_same_task_and_arguments_has_another_key():
    new_job()
    new_job()
    one, other = leases.claim(worker="A", limit=2)
    assert key_of(one) != key_of(other)


def test_an_id_that_is_used_again_after_a_restore_has_another_key():
    job_id = new_job()
    before = key_of(claim_one())
    Job.objects.all().delete()
    assert new_job(pk=job_id) == job_id
    again = claim_one()
    assert again.job_id == job_id
    assert key_of(again) != before


def test_a_job_is_told_once_its_worker_has_learned_that_the_lease_is_lost():
    new_job()
    context = context_of(claim_one("A"))
    with beating(context.holding):
        context.check()
        assert context.lease_lost is False
        reclaimed(context.holding.lease)
        until(lambda: context.lease_lost, "the heartbeat has learned of it", within=PATIENCE)
    with pytest.raises(LeaseLost) as caught:
        context.check()
    assert (caught.value.job_id, caught.value.generation) == (context.job_id, 1)
    assert [(item.action, item.verdict) for item in Rejection.objects.all()] == [("renew", "superseded")]


def test_a_lease_that_nobody_could_renew_for_its_whole_length_counts_as_lost_by_the_workers_own_clock():
    new_job()
    context = context_of(claim_one(lease=timedelta(seconds=30)))
    holding = context.holding
    holding.renewed(sent_at=time.monotonic() - 31)
    assert context.lease_lost
    with pytest.raises(LeaseLost):
        context.check()
    holding.renewed(sent_at=time.monotonic())  # "unknown" was not "lost": the database says it still is ours
    context.check()


def test_a_job_is_told_that_its_cancellation_was_requested_and_stays_the_owner():
    new_job()
    context = context_of(claim_one())
    with beating(context.holding):
        assert outcomes.cancel(context.job_id).message == "cancellation requested"
        until(lambda: context.holding.trust.cancel_requested, "the heartbeat has seen it", within=PATIENCE)
        with pytest.raises(JobCancelled) as caught:
            context.check()
    assert caught.value.job_id == context.job_id
    assert not context.lease_lost
    assert row(context.job_id).state == "running"


def test_a_lost_lease_is_told_before_a_requested_cancellation():
    new_job()
    context = context_of(claim_one())
    context.holding.trust.cancel_requested = context.holding.trust.lost = True
    with pytest.raises(LeaseLost):
        context.check()


def test_a_job_can_see_that_its_worker_is_stopping():
    new_job()
    context = context_of(claim_one())
    assert context.should_stop is False
    context.holding.stopping.set()
    assert context.should_stop is True

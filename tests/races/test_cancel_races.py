"""Cancel against claim and against completion: three honest answers, whoever comes first."""

from collections import Counter

import pytest
from django.db import transaction

from django_pgqueue import leases, outcomes
from django_pgqueue.models import Rejection
from django_pgqueue.states import Verdict
from tests.races.tools import InThread, claim_one, in_step, new_job, new_jobs, row, wait_until_blocked

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 100


def test_cancel_against_claim_a_hundred_times():
    """Cancelled means never started, and requested means that the owner will hear of it. Report 145."""
    job_ids = [new_job(queue=f"q{number}") for number in range(ROUNDS)]
    replies, claims = in_step(
        ROUNDS,
        lambda number: outcomes.cancel(job_ids[number]),
        lambda number: leases.claim(worker="A", queues=[f"q{number}"]),
    )
    answers = Counter(reply.message for reply in replies)
    assert set(answers) <= {"cancelled", "cancellation requested"}
    for job_id, reply, claimed in zip(job_ids, replies, claims, strict=True):
        job = row(job_id)
        assert reply.accepted
        assert job.cancel_requested_at is not None
        if reply.message == "cancelled":
            assert claimed == []
            assert (job.state, job.generation, job.attempts) == ("cancelled", 0, 0)
            assert job.started_at is None
        else:
            (lease,) = claimed
            assert (job.state, job.generation) == ("running", 1)
            assert leases.renew([lease]).cancel_requested == {lease.key}


def test_cancel_against_completion_a_hundred_times():
    """A finished job is not overwritten, and nobody is told that it was cancelled. Report 145."""
    job_ids = new_jobs(ROUNDS)
    held = {lease.job_id: lease for lease in leases.claim(worker="A", limit=ROUNDS)}
    replies, verdicts = in_step(
        ROUNDS,
        lambda number: outcomes.cancel(job_ids[number]),
        lambda number: outcomes.complete(held[job_ids[number]], "result"),
    )
    assert set(verdicts) == {Verdict.ACCEPTED}
    for job_id, reply in zip(job_ids, replies, strict=True):
        job = row(job_id)
        assert (job.state, job.result) == ("done", "result")
        if reply.accepted:
            assert reply.message == "cancellation requested"
            assert job.cancel_requested_at <= job.finished_at
        else:
            assert reply.message == "the job has already ended as done"
            assert job.cancel_requested_at is None
    assert not Rejection.objects.exists()


def test_cancel_against_release_a_hundred_times():
    """Either the release hears of the request and the job ends, or the waiting job is cancelled: never ready again."""
    job_ids = new_jobs(ROUNDS)
    held = {lease.job_id: lease for lease in leases.claim(worker="A", limit=ROUNDS)}
    replies, verdicts = in_step(
        ROUNDS,
        lambda number: outcomes.cancel(job_ids[number]),
        lambda number: outcomes.release(held[job_ids[number]]),
    )
    assert set(verdicts) == {Verdict.ACCEPTED}
    assert {reply.message for reply in replies} <= {"cancelled", "cancellation requested"}
    for job_id in job_ids:
        job = row(job_id)
        assert (job.state, job.attempts) == ("cancelled", 0)


def test_a_claim_skips_a_job_that_is_just_being_cancelled():
    job_id = new_job()
    with transaction.atomic():
        assert outcomes.cancel(job_id).message == "cancelled"
        assert InThread(lambda: leases.claim(worker="A")).result() == []
    assert leases.claim(worker="A") == []


def test_a_cancel_waits_for_an_uncommitted_claim_and_then_only_asks():
    job_id = new_job()
    with transaction.atomic():
        lease = claim_one()
        cancelling = InThread(lambda: outcomes.cancel(job_id))
        wait_until_blocked(cancelling.pid)
    assert cancelling.result().message == "cancellation requested"
    assert leases.renew([lease]).cancel_requested == {lease.key}


def test_a_cancel_waits_for_an_uncommitted_completion_and_then_says_how_the_job_ended():
    job_id = new_job()
    lease = claim_one()
    with transaction.atomic():
        outcomes.complete(lease)
        cancelling = InThread(lambda: outcomes.cancel(job_id))
        wait_until_blocked(cancelling.pid)
    reply = cancelling.result()
    assert (reply.accepted, reply.message) == (False, "the job has already ended as done")


def test_two_operators_who_retry_one_job_at_once_do_it_once():
    """The second finds a ready job and is told so. Report 157."""
    job_id = new_job()
    outcomes.complete(claim_one())
    with transaction.atomic():
        assert outcomes.retry(job_id).accepted
        second = InThread(lambda: outcomes.retry(job_id))
        wait_until_blocked(second.pid)
    reply = second.result()
    assert (reply.accepted, reply.message) == (False, "the job is ready")

"""Cancel, retry and run now: each a compare-and-set on the job's state, each with an honest answer."""

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from django_pgqueue import Backoff, JobContext, leases, outcomes, task, upkeep
from django_pgqueue.enqueueing import Request, enqueue
from django_pgqueue.leases import claim
from django_pgqueue.models import Failure, Job
from django_pgqueue.outcomes import fail, retry
from django_pgqueue.states import FINISHED_STATES, LIVE_STATES, State, Verdict
from tests.races.tools import claim_one, expire, new_job, reclaimed, row
from tests.worker.batches import run_until_nothing_waits, succeed

pytestmark = pytest.mark.django_db(transaction=True)

OPERATIONS = {"cancel": outcomes.cancel, "retry": outcomes.retry, "run_now": outcomes.run_now}


def job_in(state):
    """Bring a job to `state` the way jobs come there, and return its id."""
    if state == State.SCHEDULED:
        return new_job(state=state, run_after=timezone.now() + timedelta(days=1))
    job_id = new_job()
    if state == State.READY:
        return job_id
    lease = claim_one()
    if state == State.DONE:
        outcomes.complete(lease, "result")
    elif state == State.FAILED:
        outcomes.fail(lease, ValueError())
    elif state == State.CANCELLED:
        outcomes.cancel(job_id)
        outcomes.release(lease)
    assert row(job_id).state == state
    return job_id


ANSWERS = {
    "cancel": {
        "scheduled": (True, "cancelled", "cancelled"),
        "ready": (True, "cancelled", "cancelled"),
        "running": (True, "cancellation requested", "running"),
        "done": (False, "the job has already ended as done", "done"),
        "failed": (False, "the job has already ended as failed", "failed"),
        "cancelled": (False, "the job has already ended as cancelled", "cancelled"),
    },
    "retry": {
        "scheduled": (False, "the job is scheduled", "scheduled"),
        "ready": (False, "the job is ready", "ready"),
        "running": (False, "the job is running", "running"),
        "done": (True, "ready", "ready"),
        "failed": (True, "ready", "ready"),
        "cancelled": (True, "ready", "ready"),
    },
    "run_now": {
        "scheduled": (True, "ready", "ready"),
        "ready": (False, "the job is ready", "ready"),
        "running": (False, "the job is running", "running"),
        "done": (False, "the job has already ended as done", "done"),
        "failed": (False, "the job has already ended as failed", "failed"),
        "cancelled": (False, "the job has already ended as cancelled", "cancelled"),
    },
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("state", State.values)
def test_each_operation_changes_the_states_it_may_and_says_so(operation, state):
    """A running row is not revived, a finished one not overwritten, and the reply says which it was.

    Reports 145 and 157.
    """
    job_id = job_in(state)
    before = Job.objects.filter(pk=job_id).values().get()
    reply = OPERATIONS[operation](job_id)
    accepted, message, after = ANSWERS[operation][state]
    assert (reply.accepted, reply.message, row(job_id).state) == (accepted, message, after)
    if not accepted:
        assert Job.objects.filter(pk=job_id).values().get() == before


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_on_a_deleted_job_says_so(operation):
    reply = OPERATIONS[operation](987654321)
    assert (reply.accepted, reply.message) == (False, "the job no longer exists")


def test_a_retry_grants_all_attempts_again_and_keeps_generation_and_history():
    """Not "attempt 4/3", and no number that an old worker could still present. Report 45."""
    job_id = new_job(max_attempts=2)
    old = claim_one("A")
    outcomes.fail(reclaimed(old, "B"), ValueError("again"))
    assert (row(job_id).state, row(job_id).attempts) == ("failed", 2)

    assert outcomes.retry(job_id).accepted
    job = row(job_id)
    assert (job.state, job.attempts, job.generation) == ("ready", 0, 2)
    assert job.finished_at is job.cancel_requested_at is job.lease_until is job.result is None
    assert job.worker_ids == ["A", "B"]
    assert Failure.objects.count() == 2

    newer = claim_one("C")
    assert (newer.generation, newer.attempt) == (3, 1)
    assert outcomes.complete(old) == Verdict.SUPERSEDED
    assert outcomes.complete(newer) == Verdict.ACCEPTED


def test_between_a_retry_and_the_next_claim_the_old_owner_is_refused():
    job_id = new_job(max_attempts=1)
    lease = claim_one()
    expire(job_id)
    upkeep.exhaust()
    outcomes.retry(job_id)
    assert outcomes.complete(lease) == Verdict.NOT_RUNNING
    assert outcomes.fail(lease, ValueError()) == Verdict.NOT_RUNNING
    assert outcomes.release(lease) == Verdict.NOT_RUNNING
    assert row(job_id).state == "ready"


def test_a_retry_of_a_cancelled_job_forgets_the_request():
    job_id = job_in("cancelled")
    outcomes.retry(job_id)
    lease = claim_one()
    assert leases.renew([lease]).cancel_requested == frozenset()
    assert outcomes.release(lease) == Verdict.ACCEPTED
    assert row(job_id).state == "ready"


def test_a_second_cancel_request_keeps_the_time_of_the_first():
    job_id = job_in("running")
    outcomes.cancel(job_id)
    first = row(job_id).cancel_requested_at
    assert outcomes.cancel(job_id).message == "cancellation requested"
    assert row(job_id).cancel_requested_at == first


def test_a_running_job_hears_of_its_cancellation_at_the_next_heartbeat():
    """Cooperative first. Report 146."""
    job_id = new_job()
    lease = claim_one()
    assert leases.renew([lease]).cancel_requested == frozenset()
    outcomes.cancel(job_id)
    reply = leases.renew([lease])
    assert reply.renewed == reply.cancel_requested == {lease.key}


def test_a_job_to_be_cancelled_whose_worker_died_is_not_started_again():
    job_id = new_job()
    claim_one()
    outcomes.cancel(job_id)
    expire(job_id)
    assert leases.reclaim(worker="B") == []
    assert [spent.state for spent in upkeep.exhaust()] == ["cancelled"]


def test_run_now_ends_a_wait_for_a_retry_too_and_keeps_the_used_attempts():
    """Also for a job that waits in backoff. Report 115."""
    job_id = new_job()
    outcomes.fail(claim_one(), ValueError(), delay=timedelta(hours=1))
    assert leases.claim(worker="B") == []
    assert outcomes.run_now(job_id).accepted
    lease = claim_one("B")
    assert (lease.generation, lease.attempt) == (2, 2)


KEYED = Request(
    task="shop.tasks.nothing",
    payload='{"args": [], "kwargs": {}}',
    queue="default",
    priority=0,
    max_attempts=1,
    backend="default",
    unique_key="receipt-42",
)


def end_as(state, job_id):
    if state == "exhausted":
        claim_one()
        expire(job_id)
        upkeep.exhaust()
    elif state == "cancelled":
        outcomes.cancel(job_id)
    elif state == "failed":
        outcomes.fail(claim_one(), ValueError())
    else:
        outcomes.complete(claim_one())


@pytest.mark.parametrize("state", ["done", "failed", "cancelled", "exhausted"])
def test_the_end_of_a_job_frees_its_unique_key_and_a_retry_finds_it_taken(state):
    """The key frees with the lease's recovery; a retry that wants it back is refused, not an error.

    Reports 12 and 36.
    """
    first = enqueue(KEYED)
    assert enqueue(KEYED).job_id == first.job_id
    end_as(state, first.job_id)
    second = enqueue(KEYED)
    assert (second.existing, second.job_id == first.job_id) == (False, False)

    reply = outcomes.retry(first.job_id)
    assert (reply.accepted, reply.message) == (False, "another live job holds its unique key")
    assert row(first.job_id).state in FINISHED_STATES

    outcomes.cancel(second.job_id)
    assert outcomes.retry(first.job_id).accepted
    assert enqueue(KEYED).job_id == first.job_id


@pytest.mark.parametrize("state", LIVE_STATES)
def test_a_live_job_holds_its_key_in_every_live_state(state):
    """It covers waiting, scheduled and running alike, so no transition between them can collide.

    Reports 36 and 37.
    """
    first = enqueue(KEYED)
    lease = claim_one()
    if state == "ready":
        outcomes.release(lease)
    elif state == "scheduled":
        outcomes.release(lease, delay=timedelta(hours=1))
    assert row(first.job_id).state == state
    again = enqueue(KEYED)
    assert (again.job_id, again.state, again.existing) == (first.job_id, state, True)


def test_a_retry_refused_for_its_key_leaves_the_caller_s_transaction_usable():
    first = enqueue(KEYED)
    end_as("done", first.job_id)
    enqueue(KEYED)
    with transaction.atomic():
        assert not outcomes.retry(first.job_id).accepted
        other = new_job()
    assert row(other).state == "ready"


WORKER = "somebody-1"
AT_ONCE = Backoff(base=timedelta(0), cap=timedelta(0))


@task(max_attempts=2, retry=AT_ONCE, takes_context=True)
def enqueue_a_sibling_and_fail(context: JobContext) -> str:
    sibling = enqueue_a_sibling_and_fail.using(unique_key="k").enqueue()
    assert sibling.id == str(context.job_id)
    if context.attempt == 1:
        raise ValueError("again")
    return "done"


@pytest.mark.django_db(transaction=True)
def test_a_running_job_keeps_its_key_so_that_its_retry_cannot_collide() -> None:
    """Report 36."""
    result = enqueue_a_sibling_and_fail.using(unique_key="k").enqueue()
    run_until_nothing_waits()
    result.refresh()
    assert (result.return_value, result.attempts) == ("done", 2)
    assert Job.objects.count() == 1


@pytest.mark.django_db
def test_two_waiting_jobs_with_one_key_cannot_be_so_no_promotion_can_collide() -> None:
    """Report 37."""
    first = succeed.using(unique_key="k", run_after=timedelta(hours=1)).enqueue()
    assert succeed.using(unique_key="k", run_after=timedelta(hours=2)).enqueue().id == first.id
    assert succeed.using(unique_key="k").enqueue().id == first.id


@pytest.mark.django_db
def test_an_operators_retry_that_would_take_a_held_key_is_refused() -> None:
    """Report 36."""
    unique = succeed.using(unique_key="k", max_attempts=1)
    old = unique.enqueue()
    (lease,) = claim(worker=WORKER)
    fail(lease, ValueError("no"))
    new = unique.enqueue()
    assert new.id != old.id
    reply = retry(int(old.id))
    assert (reply.accepted, reply.message) == (False, "another live job holds its unique key")
    assert Job.objects.get(pk=old.id).state == State.FAILED

"""The endings of jobs, and the accounting of attempts and generations."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from django_pgqueue import leases, outcomes
from django_pgqueue.exceptions import InvalidPayload
from django_pgqueue.models import Failure
from django_pgqueue.states import Verdict
from tests.outcomes.writes import ENDINGS, complete, fail, release
from tests.races.tools import (
    claim_one,
    end_batch,
    new_job,
    reclaimed,
    row,
)

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_accepted_write_that_is_rolled_back_leaves_the_job_running(lease):
    with transaction.atomic():
        assert complete(lease) == Verdict.ACCEPTED
        transaction.set_rollback(True)
    assert row(lease.job_id).state == "running"
    assert complete(lease) == Verdict.ACCEPTED


def test_a_failure_with_attempts_left_waits_for_its_delay_by_the_database_s_clock(lease):
    assert outcomes.fail(lease, ValueError("wrong"), delay=timedelta(hours=1)) == Verdict.ACCEPTED
    job = row(lease.job_id)
    assert (job.state, job.attempts, job.generation, job.finished_at) == ("scheduled", 1, 1, None)
    with connection.cursor() as cursor:
        cursor.execute("SELECT run_after - clock_timestamp() FROM django_pgqueue_job")
        assert timedelta(minutes=59) < cursor.fetchone()[0] <= timedelta(hours=1)
    failure = Failure.objects.get()
    assert (failure.job_id, failure.generation, failure.worker, failure.kind) == (
        lease.job_id,
        1,
        "A",
        "error",
    )
    assert (failure.exception_class, failure.message) == ("builtins.ValueError", "wrong")


def test_a_failure_without_a_wait_is_ready_at_once(lease):
    assert outcomes.fail(lease, ValueError(), delay=timedelta(0)) == Verdict.ACCEPTED
    assert claim_one("B").key == (lease.job_id, 2)


def test_a_failure_that_is_not_to_be_retried_ends_the_job(lease):
    assert fail(lease) == Verdict.ACCEPTED
    job = row(lease.job_id)
    assert (job.state, job.lease_until) == ("failed", None)
    assert job.finished_at is not None
    assert leases.claim(worker="B") == []


@pytest.mark.parametrize("max_attempts", [1, 2, 3])
def test_a_job_that_always_fails_starts_exactly_max_attempts_times(max_attempts):
    """A delay for the last one too changes nothing. Reports 42 and 45."""
    job_id = new_job(max_attempts=max_attempts)
    starts = 0
    while claimed := leases.claim(worker="A"):
        starts += 1
        outcomes.fail(claimed[0], ValueError(), delay=timedelta(0))
    job = row(job_id)
    assert (starts, job.attempts, job.generation, job.state) == (max_attempts,) * 3 + ("failed",)
    assert Failure.objects.count() == max_attempts


def test_generation_only_counts_claims_and_attempts_also_go_down():
    """A counter that can be reset is no fence. Reports 41 and 47."""
    job_id = new_job(max_attempts=3)

    def counters():
        job = row(job_id)
        return job.state, job.generation, job.attempts, len(job.worker_ids)

    lease = claim_one("a")
    assert counters() == ("running", 1, 1, 1)
    release(lease)
    assert counters() == ("ready", 1, 0, 1)
    lease = claim_one("b")
    assert (lease.generation, lease.attempt) == (2, 1)
    outcomes.release(lease, delay=timedelta(hours=1))
    assert counters() == ("scheduled", 2, 0, 2)
    assert outcomes.run_now(job_id).accepted
    lease = claim_one("c")
    outcomes.fail(lease, ValueError(), delay=timedelta(0))
    assert counters() == ("ready", 3, 1, 3)
    lease = reclaimed(claim_one("d"), "e")
    assert (lease.generation, lease.attempt) == (5, 3)
    fail(lease)
    assert counters() == ("failed", 5, 3, 5)
    assert outcomes.retry(job_id).accepted
    assert counters() == ("ready", 5, 0, 5)
    assert claim_one("f").key == (job_id, 6)
    assert row(job_id).worker_ids == ["a", "b", "c", "d", "e", "f"]


def test_a_job_that_is_released_for_ever_never_runs_out_of_attempts():
    job_id = new_job(max_attempts=1)
    for generation in range(1, 11):
        lease = claim_one()
        assert (lease.generation, lease.attempt) == (generation, 1)
        release(lease)
    assert complete(claim_one()) == Verdict.ACCEPTED
    assert (row(job_id).generation, row(job_id).attempts) == (11, 1)


def test_started_at_is_the_first_claim_s_and_last_attempted_at_the_latest_one_s(lease):
    newer = reclaimed(lease)
    job = row(lease.job_id)
    assert job.started_at == lease.claimed_at < newer.claimed_at == job.last_attempted_at


@pytest.mark.parametrize("ending", ["fail_and_retry", "release", "snooze"])
def test_a_job_whose_cancellation_was_requested_ends_as_cancelled_instead_of_waiting_again(ending, lease):
    assert outcomes.cancel(lease.job_id).message == "cancellation requested"
    assert ENDINGS[ending](lease) == Verdict.ACCEPTED
    job = row(lease.job_id)
    assert job.state == "cancelled"
    assert job.finished_at is not None
    assert Failure.objects.count() == (1 if ending == "fail_and_retry" else 0)
    assert ENDINGS[ending](lease) == Verdict.ALREADY_ACCEPTED


@pytest.mark.parametrize(("ending", "state"), [("complete", "done"), ("fail", "failed")])
def test_a_job_that_ends_in_spite_of_a_requested_cancellation_has_ended_so(ending, state, lease):
    outcomes.cancel(lease.job_id)
    assert ENDINGS[ending](lease) == Verdict.ACCEPTED
    assert row(lease.job_id).state == state


def test_an_owner_that_confirms_a_cancellation_leaves_a_failure_of_that_kind(lease):
    outcomes.cancel(lease.job_id)
    error = outcomes.endings.render_exception(ValueError("told to stop"))
    (reply,) = end_batch([outcomes.Ending.failed(lease, error, None, "cancelled")])
    assert (reply.verdict, reply.state) == ("accepted", "cancelled")
    assert Failure.objects.get().kind == "cancelled"


def test_no_failed_write_of_an_outcome_ends_the_job_halfway(lease):
    with pytest.raises(InvalidPayload):
        outcomes.complete(lease, {"x": float("nan")})
    assert row(lease.job_id).state == "running"
    assert complete(lease) == Verdict.ACCEPTED


def test_a_result_is_stored_and_a_retry_clears_it(lease):
    outcomes.complete(lease, {"mail": [1, "é", None]})
    assert row(lease.job_id).result == {"mail": [1, "é", None]}
    outcomes.retry(lease.job_id)
    assert row(lease.job_id).result is None

"""Every verdict for every ending, the ledger of refusals, and the accounting of attempts and generations."""

import logging
from datetime import timedelta

import pytest
from django.db import connection, transaction

from django_pgqueue import leases, outcomes
from django_pgqueue.exceptions import InvalidPayload
from django_pgqueue.models import Failure, Job, Rejection
from django_pgqueue.signals import completion_rejected
from django_pgqueue.states import Verdict
from tests.races.tools import (
    LONG,
    claim_one,
    end_batch,
    expire,
    new_job,
    new_jobs,
    only_rejection,
    reclaimed,
    row,
)

pytestmark = pytest.mark.django_db(transaction=True)

SECOND = timedelta(seconds=1)


def complete(lease):
    return outcomes.complete(lease, "result")


def fail(lease):
    return outcomes.fail(lease, ValueError("wrong"))


def fail_and_retry(lease):
    return outcomes.fail(lease, ValueError("wrong"), delay=SECOND)


def release(lease):
    return outcomes.release(lease)


def snooze(lease):
    return outcomes.snooze(lease, SECOND)


def renew(lease):
    reply = leases.renew([lease])
    if reply.renewed:
        return Verdict.ACCEPTED
    (refused,) = reply.lost
    return refused.verdict


WRITES = {"complete": complete, "fail": fail, "release": release, "renew": renew}
every_write = pytest.mark.parametrize("action", WRITES)


@pytest.fixture
def lease():
    new_job(max_attempts=3)
    return claim_one("A")


def spend(lease):
    """Let the lease of a last attempt run out and the job end of it."""
    Job.objects.filter(pk=lease.job_id).update(max_attempts=lease.attempt)
    expire(lease.job_id)
    (spent,) = outcomes.exhaust()
    return spent


# How a job moves on under its old worker, and what each of that worker's writes gets then.
MOVES = {
    "reclaimed": (lambda lease: reclaimed(lease), "superseded", "running"),
    "reclaimed and done": (lambda lease: complete(reclaimed(lease)), "superseded", "done"),
    "reclaimed and failed": (lambda lease: fail(reclaimed(lease)), "superseded", "failed"),
    "reclaimed and released": (lambda lease: release(reclaimed(lease)), "superseded", "ready"),
    "exhausted": (spend, "not_running", "failed"),
    "deleted": (lambda lease: row(lease.job_id).delete(), "missing", ""),
}


@every_write
def test_the_owner_s_write_is_accepted_and_leaves_no_rejection(action, lease):
    assert WRITES[action](lease) == Verdict.ACCEPTED
    assert not Rejection.objects.exists()


@every_write
@pytest.mark.parametrize("move", MOVES)
def test_a_write_for_a_job_that_has_moved_on_is_refused_and_changes_nothing(action, move, lease):
    """15, 27, 38: every worker-side write with an old generation."""
    moved, verdict, state = MOVES[move]
    moved(lease)
    before = list(Job.objects.values()), list(Failure.objects.values())

    assert WRITES[action](lease) == verdict
    assert (list(Job.objects.values()), list(Failure.objects.values())) == before
    rejection = only_rejection(lease.job_id)
    assert (rejection.action, rejection.verdict, rejection.seen_state) == (action, verdict, state)
    assert (rejection.worker, rejection.generation) == ("A", 1)
    current = Job.objects.filter(pk=lease.job_id).values_list("generation", flat=True).first()
    assert rejection.current_generation == current


@every_write
def test_an_expired_lease_that_nobody_reclaimed_is_refused_under_strict_fencing_only(action, lease):
    strict = lease._replace(fencing="strict")
    assert renew(strict) == Verdict.ACCEPTED
    expire(lease.job_id, ago=timedelta(minutes=1))
    assert WRITES[action](strict) == Verdict.EXPIRED
    assert row(lease.job_id).state == "running"
    rejection = only_rejection(lease.job_id)
    assert (rejection.action, rejection.verdict) == (action, "expired")
    assert rejection.seen_lease_until == row(lease.job_id).lease_until
    assert timedelta(minutes=1) <= rejection.late_by < timedelta(minutes=2)

    assert WRITES[action](lease) == Verdict.ACCEPTED


ENDINGS = {
    "complete": complete,
    "fail": fail,
    "fail_and_retry": fail_and_retry,
    "release": release,
    "snooze": snooze,
}
SAME = [("complete", "complete"), ("release", "release"), ("release", "snooze"), ("snooze", "release")]
SAME += [("snooze", "snooze"), ("fail", "fail"), ("fail", "fail_and_retry"), ("fail_and_retry", "fail")]
SAME += [("fail_and_retry", "fail_and_retry")]


@pytest.mark.parametrize(("first", "second"), [(first, second) for first in ENDINGS for second in ENDINGS])
def test_a_second_ending_of_one_generation_is_already_accepted_if_it_is_the_same_and_else_refused(
    first, second, lease
):
    """The reply of an earlier commit may have been lost: asking again is answered, and records no refusal."""
    assert ENDINGS[first](lease) == Verdict.ACCEPTED
    before = list(Job.objects.values()), list(Failure.objects.values())
    same = (first, second) in SAME
    assert ENDINGS[second](lease) == (Verdict.ALREADY_ACCEPTED if same else Verdict.NOT_RUNNING)
    assert (list(Job.objects.values()), list(Failure.objects.values())) == before
    assert Rejection.objects.count() == (0 if same else 1)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_renewal_after_the_own_ending_is_not_running(ending, lease):
    ENDINGS[ending](lease)
    assert renew(lease) == Verdict.NOT_RUNNING
    assert only_rejection(lease.job_id).action == "renew"


def test_a_claim_that_was_never_committed_owns_nothing(lease):
    """A worker that believes in a rolled-back claim of a later generation is refused."""
    never = lease._replace(generation=2)
    assert outcomes.complete(never) == Verdict.NOT_RUNNING
    rejection = only_rejection(lease.job_id)
    assert (rejection.generation, rejection.current_generation, rejection.late_by) == (2, 1, None)
    assert complete(lease) == Verdict.ACCEPTED


def test_a_rejection_says_how_long_after_the_loss_the_write_came(lease):
    newer = reclaimed(lease)
    Job.objects.filter(pk=lease.job_id).update(last_attempted_at=newer.claimed_at - timedelta(minutes=7))
    complete(lease)
    assert timedelta(minutes=7) <= only_rejection(lease.job_id).late_by < timedelta(minutes=8)


def test_the_lateness_after_an_end_counts_from_the_end_and_after_a_release_is_unknown(lease):
    spend(lease)
    Job.objects.update(finished_at=row(lease.job_id).finished_at - timedelta(minutes=9))
    complete(lease)
    assert timedelta(minutes=9) <= only_rejection(lease.job_id).late_by < timedelta(minutes=10)

    new_job()
    other = claim_one()
    release(other)
    complete(other)
    assert only_rejection(other.job_id).late_by is None


@every_write
def test_a_rejection_survives_the_rollback_of_the_caller_s_transaction(action, lease):
    reclaimed(lease)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        assert WRITES[action](lease) == Verdict.SUPERSEDED
        raise ZeroDivisionError
    assert only_rejection(lease.job_id).action == action


def test_a_rejection_is_written_with_autocommit_off_too(lease):
    reclaimed(lease)
    transaction.set_autocommit(False)
    try:
        assert complete(lease) == Verdict.SUPERSEDED
        transaction.rollback()
    finally:
        transaction.set_autocommit(True)
    assert only_rejection(lease.job_id).action == "complete"


def test_a_refused_write_leaves_the_caller_s_transaction_usable_and_on_its_own_connection(lease):
    reclaimed(lease)
    mine = connection.connection
    with transaction.atomic():
        complete(lease)
        assert connection.connection is mine
        job_id = new_job()
    assert row(job_id).state == "ready"


def test_an_accepted_write_that_is_rolled_back_leaves_the_job_running(lease):
    with transaction.atomic():
        assert complete(lease) == Verdict.ACCEPTED
        transaction.set_rollback(True)
    assert row(lease.job_id).state == "running"
    assert complete(lease) == Verdict.ACCEPTED


def test_a_refusal_is_told_once_to_receivers_and_to_the_log_without_a_payload(lease, caplog):
    """127: the log knows the job by its number only. 138: a receiver that raises changes nothing."""
    Job.objects.update(payload={"args": ["hunter2-marker"], "kwargs": {}})
    told = []

    def raises(sender, **given):
        raise RuntimeError("a receiver's own fault")

    def listens(sender, **given):
        told.append((sender, given))

    reclaimed(lease)
    completion_rejected.connect(raises)
    completion_rejected.connect(listens)
    try:
        with caplog.at_level(logging.WARNING, "django_pgqueue"):
            assert complete(lease) == Verdict.SUPERSEDED
    finally:
        completion_rejected.disconnect(raises)
        completion_rejected.disconnect(listens)

    ((sender, given),) = told
    rejection = only_rejection(lease.job_id)
    assert sender is Rejection
    assert given.pop("late_by") == rejection.late_by
    del given["signal"]
    assert given == {
        "job_id": lease.job_id,
        "generation": 1,
        "current_generation": 2,
        "action": "complete",
        "verdict": "superseded",
        "worker": "A",
    }
    (record,) = [item for item in caplog.records if item.name == "django_pgqueue"]
    assert (record.event, record.job_id, record.generation) == ("rejected", lease.job_id, 1)
    assert "hunter2" not in caplog.text


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
    """42, 45: a delay for the last one too changes nothing."""
    job_id = new_job(max_attempts=max_attempts)
    starts = 0
    while claimed := leases.claim(worker="A"):
        starts += 1
        outcomes.fail(claimed[0], ValueError(), delay=timedelta(0))
    job = row(job_id)
    assert (starts, job.attempts, job.generation, job.state) == (max_attempts,) * 3 + ("failed",)
    assert Failure.objects.count() == max_attempts


def test_generation_only_counts_claims_and_attempts_also_go_down():
    """2 words of the contract: a counter that can be reset is no fence. 41, 47."""
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
    outcomes.snooze(lease, timedelta(hours=1))
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
    (reply,) = end_batch([outcomes.failed(lease, error, None, "cancelled")])
    assert (reply.verdict, reply.state) == ("accepted", "cancelled")
    assert Failure.objects.get().kind == "cancelled"


def test_exhaustion_fails_spent_jobs_and_cancels_those_that_were_to_be_cancelled():
    """8: a worker lost in the last allowed attempt; the row ends, with a failure that says so."""
    spent, cancelled, left, live = new_jobs(4, max_attempts=2)
    Job.objects.filter(pk=spent).update(max_attempts=1)
    leases.claim(worker="A", limit=4)
    outcomes.cancel(cancelled)
    assert outcomes.exhaust() == []
    expire(spent, cancelled, left)

    ended = {item.job_id: item.state for item in outcomes.exhaust()}
    assert ended == {spent: "failed", cancelled: "cancelled"}
    for job_id, state in ended.items():
        job = row(job_id)
        assert (job.state, job.generation, job.attempts, job.lease_until) == (state, 1, 1, None)
        assert job.finished_at is not None
    by_job = {failure.job_id: failure for failure in Failure.objects.all()}
    assert set(by_job) == {spent, cancelled}
    assert (by_job[spent].kind, by_job[spent].worker, by_job[spent].generation) == ("lease_expired", "A", 1)
    assert "the last of 1 attempts" in by_job[spent].message
    assert "cancellation had been requested" in by_job[cancelled].message
    assert outcomes.exhaust() == []
    assert (row(left).state, row(live).state) == ("running", "running")


@every_write
def test_a_write_after_the_lease_s_end_had_confirmed_a_cancellation_is_refused(action, lease):
    """It was not this write that ended the job, so it is not "already accepted"."""
    outcomes.cancel(lease.job_id)
    expire(lease.job_id)
    assert outcomes.exhaust()[0].state == "cancelled"
    assert WRITES[action](lease) == Verdict.NOT_RUNNING
    rejection = only_rejection(lease.job_id)
    assert (rejection.action, rejection.seen_state) == (action, "cancelled")
    assert rejection.late_by is not None


def test_a_reclaim_records_the_lost_attempt(lease):
    """14, 41: a lost lease is one used attempt; its failure names the lost worker and generation."""
    lost_until = row(lease.job_id)
    reclaimed(lease, "B")
    failure = Failure.objects.get()
    assert (failure.generation, failure.worker, failure.kind) == (1, "A", "lease_expired")
    assert "The lease expired at " in failure.message
    assert lost_until.attempts == 1


def test_no_failed_write_of_an_outcome_ends_the_job_halfway(lease):
    with pytest.raises(InvalidPayload):
        outcomes.complete(lease, {"x": float("nan")})
    assert row(lease.job_id).state == "running"
    assert complete(lease) == Verdict.ACCEPTED


def test_a_batch_gives_each_its_own_verdict():
    """76, 141: one statement for accepted, repeated, superseded, expired, ended and deleted jobs alike."""
    ids = new_jobs(6)
    held = dict(zip(ids, leases.claim(worker="A", limit=6), strict=True))
    good, twice, moved, late, ended, gone = (held[job_id] for job_id in ids)
    complete(twice)
    reclaimed(moved)
    late = late._replace(fencing="strict")
    expire(late.job_id)
    release(ended)
    row(gone.job_id).delete()

    asked = [outcomes.completed(item) for item in (gone, ended, late, moved, twice, good)]
    replies = {reply.ending.lease.job_id: str(reply.verdict) for reply in end_batch(asked)}
    assert [replies[job_id] for job_id in ids] == [
        "accepted",
        "already_accepted",
        "superseded",
        "expired",
        "not_running",
        "missing",
    ]
    assert Rejection.objects.count() == 4


def test_a_result_is_stored_and_a_retry_clears_it(lease):
    outcomes.complete(lease, {"mail": [1, "é", None]})
    assert row(lease.job_id).result == {"mail": [1, "é", None]}
    outcomes.retry(lease.job_id)
    assert row(lease.job_id).result is None


def test_renewal_counts_from_now_by_the_lease_s_own_duration(lease):
    longer = lease._replace(duration=timedelta(hours=1))
    before = row(lease.job_id)
    assert renew(longer) == Verdict.ACCEPTED
    after = row(lease.job_id)
    assert after.lease_until - before.lease_until > timedelta(hours=1) - LONG
    assert (after.generation, after.attempts, after.worker_ids) == (1, 1, ["A"])

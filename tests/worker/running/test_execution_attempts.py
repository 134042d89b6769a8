"""How often a job is started, and when it is tried again."""

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from django_pgqueue import Backoff, DoNotRetry, JobContext, Snooze, task
from django_pgqueue.compat import TaskResultStatus
from django_pgqueue.leases import claim, reclaim
from django_pgqueue.models import Job
from django_pgqueue.outcomes import cancel, complete, fail, release, retry
from django_pgqueue.states import FINISHED_STATES, Kind, State, Verdict
from django_pgqueue.upkeep import exhaust
from testproject.shop.models import Order
from tests.worker.batches import note_start, run_until_nothing_waits, run_worker, starts, succeed

WORKER = "somebody-1"
AT_ONCE = Backoff(base=timedelta(0), cap=timedelta(0))


@task(max_attempts=1_000_000, retry=Backoff(base=timedelta(days=1), cap=timedelta(days=2)))
def fail_slowly() -> None:
    raise ValueError("no")


@task(retry=AT_ONCE)
def audit_and_fail(key: int) -> None:
    note_start("fail", key)
    raise ValueError("no")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("max_attempts", [1, 2, 3])
def test_a_job_that_always_fails_starts_exactly_max_attempts_times(max_attempts: int) -> None:
    """Report 42."""
    result = audit_and_fail.using(max_attempts=max_attempts).enqueue(1)
    run_until_nothing_waits()
    result.refresh()
    assert starts("fail", 1) == max_attempts == result.attempts == len(result.errors)
    assert Job.objects.get().attempts == max_attempts


@pytest.mark.django_db
@pytest.mark.parametrize("max_attempts", [1, 2, 3])
def test_an_attempt_counts_when_it_is_claimed_so_a_killed_worker_uses_it_up(
    max_attempts: int,
) -> None:
    """Reports 8 and 41."""
    succeed.using(max_attempts=max_attempts).enqueue()
    claims = len(claim(worker="w-0"))
    for number in range(1, 6):
        Job.objects.running().update(lease_until="2000-01-01T00:00Z")
        exhaust()
        claims += len(reclaim(worker=f"w-{number}"))
    job = Job.objects.get()
    assert (claims, job.attempts, job.state) == (max_attempts, max_attempts, State.FAILED)
    assert [failure.kind for failure in job.failures.all()] == [Kind.LEASE_EXPIRED] * max_attempts


@pytest.mark.django_db(transaction=True)
def test_a_backoff_from_attempt_5000_is_clamped_and_cannot_fail() -> None:
    """Report 44."""
    fail_slowly.enqueue()
    Job.objects.update(attempts=5000)
    run_worker()
    job = Job.objects.get()
    assert (job.state, job.attempts) == (State.SCHEDULED, 5001)
    assert timedelta(days=1) <= job.run_after - job.last_attempted_at < timedelta(days=2, seconds=10)


@task(takes_context=True, max_attempts=1)
def snooze_for_ever(context: JobContext) -> None:
    raise Snooze(timedelta.max)


@pytest.mark.django_db(transaction=True)
def test_a_snooze_without_end_is_clamped() -> None:
    """Report 44."""
    snooze_for_ever.enqueue()
    run_worker()
    job = Job.objects.get()
    assert (job.state, job.attempts, job.failures.count()) == (State.SCHEDULED, 0, 0)
    assert job.run_after.year < 2100


@pytest.mark.django_db
def test_a_delay_without_end_is_clamped() -> None:
    """Report 44."""
    succeed.enqueue()
    (lease,) = claim(worker=WORKER)
    assert fail(lease, ValueError("no"), delay=timedelta.max) == Verdict.ACCEPTED
    assert Job.objects.get().run_after.year < 2100


def _raising_policy(attempt: int, error: BaseException) -> timedelta | None:
    raise SystemExit("a policy of the user's")


def _nonsense_policy(attempt: int, error: BaseException) -> Any:
    return float("inf")


def _longest_policy(attempt: int, error: BaseException) -> timedelta | None:
    return timedelta.max


def _past_policy(attempt: int, error: BaseException) -> timedelta | None:
    return timedelta(days=-9)


@task(max_attempts=2, retry=_raising_policy)
def with_raising_policy() -> None:
    raise ValueError("no")


@task(max_attempts=2, retry=_nonsense_policy)
def with_nonsense_policy() -> None:
    raise ValueError("no")


@task(max_attempts=2, retry=_longest_policy)
def with_longest_policy() -> None:
    raise ValueError("no")


@task(max_attempts=2, retry=_past_policy)
def with_past_policy() -> None:
    raise ValueError("no")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "failing", [with_raising_policy, with_nonsense_policy, with_longest_policy, with_past_policy]
)
def test_a_retry_policy_cannot_fail_nor_name_the_past(failing) -> None:
    """Report 44."""
    result = failing.enqueue()
    run_until_nothing_waits()
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 2)


@task(max_attempts=9, retry=AT_ONCE, no_retry=(KeyError,))
def fail_for_good(how: str) -> None:
    note_start("good", how)
    if how == "DoNotRetry":
        raise DoNotRetry("a permanent failure")
    raise {}["missing"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["DoNotRetry", "no_retry"])
def test_a_permanent_failure_ends_the_job_at_once(how: str) -> None:
    """Report 49."""
    result = fail_for_good.enqueue(how)
    run_until_nothing_waits()
    result.refresh()
    assert (result.status, result.attempts, starts("good", how)) == (TaskResultStatus.FAILED, 1, 1)


@task(max_attempts=1, takes_context=True)
def snooze_twice(context: JobContext, key: int) -> str:
    if note_start("snooze", key) < 3:
        raise Snooze(timedelta(hours=1))
    return f"attempt {context.attempt} at generation {context.generation}"


@pytest.mark.django_db(transaction=True)
def test_a_snooze_uses_up_no_attempt() -> None:
    result = snooze_twice.enqueue(1)
    run_worker()
    job = Job.objects.get()
    assert (job.state, job.attempts, job.generation) == (State.SCHEDULED, 0, 1)
    assert timedelta(minutes=59) < job.run_after - job.last_attempted_at < timedelta(minutes=61)
    run_until_nothing_waits()
    result.refresh()
    assert result.return_value == "attempt 1 at generation 3"
    assert result.errors == []


def assert_every_job_has_ended_or_can_be_claimed_again() -> None:
    """Check the invariant of reports 8, 11 and 46: no state is neither claimable nor terminal."""
    for job in Job.objects.all():
        if job.state in FINISHED_STATES:
            assert job.finished_at is not None and job.lease_until is None
        elif job.state == State.RUNNING:
            assert job.lease_until is not None
        else:
            assert job.attempts < job.max_attempts and job.lease_until is None


@pytest.mark.django_db(transaction=True)  # a rejection commits on its own, also inside a test's transaction
@pytest.mark.parametrize("seed", range(5))
def test_no_sequence_of_transitions_strands_a_job(seed: int) -> None:
    """Reports 11 and 46."""
    chance = random.Random(seed)
    for number in range(12):
        succeed.using(max_attempts=chance.randint(1, 3)).enqueue(number)
    held: list[Any] = []
    moves: list[Any] = [
        lambda: held.extend(claim(worker=WORKER, limit=2)),
        lambda: held.extend(reclaim(worker=WORKER, limit=2)),
        lambda: held and complete(chance.choice(held)),
        lambda: held and fail(chance.choice(held), ValueError("no"), delay=timedelta(0)),
        lambda: held and fail(chance.choice(held), ValueError("no"), delay=timedelta(hours=1)),
        lambda: held and fail(chance.choice(held), ValueError("no")),
        lambda: held and release(chance.choice(held)),
        lambda: held and release(chance.choice(held), delay=timedelta(hours=1)),
        lambda: Job.objects.running().update(lease_until="2000-01-01T00:00Z"),
        lambda: Job.objects.filter(state=State.SCHEDULED).update(run_after="2000-01-01T00:00Z"),
        exhaust,
        lambda: cancel(chance.choice(ids)),
        lambda: retry(chance.choice(ids)),
    ]
    ids = list(Job.objects.values_list("pk", flat=True))
    for _ in range(120):
        chance.choice(moves)()
        assert_every_job_has_ended_or_can_be_claimed_again()


@task(takes_context=True, retry=AT_ONCE)
def mixed(context: JobContext, key: int, fate: str) -> int:
    number = note_start("mixed", key)
    if fate == "retries" and number < 3:
        raise ValueError("again")
    if fate in ("fails", "exits"):
        raise ValueError("no") if fate == "fails" else SystemExit(1)
    if fate == "permanent":
        raise DoNotRetry("no")
    if fate == "unstorable":
        return {1}  # type: ignore[return-value]
    return number


@pytest.mark.django_db(transaction=True)
def test_attempts_equal_the_audited_starts_of_300_mixed_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report 47."""
    # On a busy machine a job may wait long for its slot, and would be given back: a claim without a start.
    monkeypatch.setattr("django_pgqueue.worker.loop.cycle.LONGEST_WAIT_SECONDS", 60.0)
    fates = ["succeeds", "retries", "fails", "exits", "permanent", "unstorable"]
    for key in range(300):
        mixed.using(max_attempts=1 + key % 4).enqueue(key, fates[key % len(fates)])
    run_until_nothing_waits()
    counted = Counter(Order.objects.values_list("customer", flat=True))
    for job in Job.objects.all():
        key, fate = job.payload["args"]
        assert counted[f"mixed-{key}"] == job.attempts == job.generation == len(job.worker_ids), fate
        assert job.attempts <= job.max_attempts
        assert job.failures.count() == job.attempts - (job.state == State.DONE)
        expected = {"succeeds": 1, "permanent": 1, "unstorable": 1}.get(fate, job.max_attempts)
        assert job.attempts == (min(3, expected) if fate == "retries" else expected)
    assert_every_job_has_ended_or_can_be_claimed_again()

"""The retry policy is pure: attempt and exception in, a delay or None out, and it cannot fail."""

import math
from collections import Counter
from datetime import timedelta

import pytest

from django_pgqueue.bounds import RETRY_DELAY
from django_pgqueue.exceptions import DoNotRetry, InvalidPayload
from django_pgqueue.retry import Backoff, next_delay

SECOND = timedelta(seconds=1)
STEADY = Backoff(base=SECOND, cap=timedelta(hours=1), factor=2, jitter=0)


def decide(policy, *, attempt=1, max_attempts=5, exception=None, **given):
    exception = exception or ValueError("wrong")
    return next_delay(attempt=attempt, max_attempts=max_attempts, exception=exception, policy=policy, **given)


def test_the_wait_doubles_until_its_cap():
    waits = [STEADY.delay(attempt).total_seconds() for attempt in (1, 2, 3, 4, 12, 13, 14)]
    assert waits == [1, 2, 4, 8, 2048, 3600, 3600]


@pytest.mark.parametrize("attempt", [64, 1024, 1025, 5000, 10**6, 2**31 - 1, 2**63])
@pytest.mark.parametrize("factor", [2, 2.0, 1.5, 10**300])
def test_any_number_of_attempts_waits_the_cap_and_never_overflows(attempt, factor):
    """Unbounded powers overflowed the date or the float, in the error path, for ever. Report 44."""
    assert Backoff(cap=timedelta(minutes=7), factor=factor, jitter=0).delay(attempt) == timedelta(minutes=7)


@pytest.mark.parametrize("attempt", [1, 2, 1024, 5000, 2**31])
def test_a_base_of_zero_is_no_wait_at_any_attempt(attempt):
    """Report 44."""
    assert Backoff(base=timedelta(0)).delay(attempt) == timedelta(0)


@pytest.mark.parametrize("attempt", [-5, 0, 1])
def test_an_attempt_before_the_first_counts_as_the_first(attempt):
    assert STEADY.delay(attempt) == SECOND


@pytest.mark.parametrize("attempt", [1, 2, 1000, 5000])
def test_a_factor_of_one_is_a_constant_wait(attempt):
    assert Backoff(base=SECOND, factor=1, jitter=0).delay(attempt) == SECOND


@pytest.mark.parametrize(
    "wrong",
    [
        {"base": timedelta(seconds=-1)},
        {"base": timedelta(hours=2), "cap": timedelta(hours=1)},
        {"cap": timedelta(seconds=-1)},
        {"cap": RETRY_DELAY.most + SECOND},
        {"cap": timedelta.max},
        {"factor": 0.99},
        {"factor": -2},
        {"factor": math.inf},
        {"factor": math.nan},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": math.nan},
    ],
    ids=str,
)
def test_a_policy_that_could_give_a_negative_or_endless_wait_is_refused(wrong):
    """Negative, infinite and undefined numbers, when the policy is written, not when a job fails.

    Report 44.
    """
    with pytest.raises(ValueError, match="Backoff"):
        Backoff(**wrong)


@pytest.mark.parametrize("jitter", [0, 0.25, 1])
@pytest.mark.parametrize("attempt", [1, 7, 5000])
def test_the_wait_is_never_negative_and_never_above_the_cap(jitter, attempt):
    policy = Backoff(base=SECOND, cap=timedelta(minutes=1), jitter=jitter)
    full = policy.delay(attempt, chance=lambda: 0.0)
    least = policy.delay(attempt, chance=lambda: 1.0)
    assert timedelta(0) <= least <= full <= timedelta(minutes=1)
    assert least == full * (1 - jitter)


def test_a_thousand_jobs_that_fail_together_do_not_return_together():
    """Spread over the jitter's share of the wait, and capped. Report 48."""
    policy = Backoff(base=timedelta(minutes=1), cap=timedelta(minutes=10), jitter=0.5)
    for attempt in (1, 4, 50):
        full = policy.delay(attempt, chance=lambda: 0.0)
        waits = [policy.delay(attempt) for _ in range(1000)]
        assert min(waits) >= full / 2
        assert max(waits) <= full <= timedelta(minutes=10)
        tenths = Counter(int((wait - full / 2) / (full / 20)) for wait in waits)
        assert len(tenths) >= 10
        assert max(tenths.values()) < 200


@pytest.mark.parametrize("max_attempts", [1, 2, 3])
def test_the_last_attempt_is_not_followed_by_another(max_attempts):
    """max_attempts counts all starts, the first included. Reports 42 and 43."""
    delays = [decide(STEADY, attempt=n, max_attempts=max_attempts) for n in range(1, max_attempts + 2)]
    assert [delay is not None for delay in delays] == [True] * (max_attempts - 1) + [False] * 2


@pytest.mark.parametrize("exception", [DoNotRetry("no"), InvalidPayload("x"), KeyError("k")])
def test_a_permanent_failure_is_not_retried(exception):
    """By the exception that says so, or by the task's own list. Report 49."""
    assert decide(STEADY, exception=exception, no_retry=(LookupError,)) is None


def test_an_exception_that_no_list_names_is_retried():
    assert decide(STEADY, exception=ValueError(), no_retry=(LookupError,)) == SECOND


def test_a_callable_policy_decides_by_attempt_and_exception():
    asked = []

    def policy(attempt, exception):
        asked.append((attempt, exception))
        return timedelta(seconds=attempt * 10) if isinstance(exception, OSError) else None

    error = OSError("unreachable")
    assert decide(policy, attempt=3, exception=error) == timedelta(seconds=30)
    assert asked == [(3, error)]
    assert decide(policy, exception=ValueError()) is None


def raises(error):
    def policy(attempt, exception):
        raise error

    return policy


@pytest.mark.parametrize(
    "policy",
    [
        raises(ZeroDivisionError()),
        raises(RecursionError()),
        raises(OverflowError("date value out of range")),
        raises(SystemExit(3)),
        lambda attempt, exception: 30,
        lambda attempt, exception: "soon",
        lambda attempt, exception: math.inf,
        lambda attempt: timedelta(0),
        lambda attempt, exception: timedelta(seconds=2.0**attempt),
    ],
)
def test_a_policy_that_raises_or_answers_nonsense_gives_the_usual_backoff(policy):
    """The path that records a failure must not fail. Report 44."""
    delay = decide(policy, attempt=5000, max_attempts=10**6)
    assert Backoff().cap * (1 - Backoff().jitter) <= delay <= Backoff().cap


@pytest.mark.parametrize(
    ("given", "used"),
    [
        (timedelta(seconds=-5), timedelta(0)),
        (timedelta.min, timedelta(0)),
        (timedelta.max, RETRY_DELAY.most),
        (timedelta(0), timedelta(0)),
    ],
)
def test_a_callable_s_delay_is_clamped_between_now_and_the_longest(given, used):
    """Never in the past, and never past what a date can hold. Report 44."""
    assert decide(lambda attempt, exception: given) == used


@pytest.mark.parametrize("no_retry", [("not a class",), (int,), (None,)])
def test_a_wrong_no_retry_list_does_not_stop_the_recording(no_retry):
    assert decide(STEADY, no_retry=no_retry) is not None

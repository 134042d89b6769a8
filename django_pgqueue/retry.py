"""Retry policy: pure decisions from an attempt and its exception, never a look at the database."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from .bounds import RETRY_DELAY
from .exceptions import DoNotRetry, InvalidPayload


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential backoff with jitter.

    After attempt n the delay is `base * factor ** (n - 1)`, at most `cap`, less a random share of up
    to `jitter` (0 to 1), so that jobs that failed together do not return together.
    Raises ValueError for a policy that could give a negative, infinite or undefined delay.
    """

    base: timedelta = timedelta(seconds=2)
    cap: timedelta = timedelta(hours=1)
    factor: float = 2.0
    jitter: float = 0.25

    def __post_init__(self) -> None:
        if not timedelta(0) <= self.base <= self.cap <= RETRY_DELAY.most:
            raise ValueError(
                f"Backoff needs 0 <= base <= cap <= {RETRY_DELAY.most.days} days, not {self.base}, {self.cap}"
            )
        if not (math.isfinite(self.factor) and self.factor >= 1):
            raise ValueError(f"Backoff factor must be a finite number of at least 1, not {self.factor}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"Backoff jitter must be between 0 and 1, not {self.jitter}")

    def delay(self, attempt: int, *, chance: Callable[[], float] = random.random) -> timedelta:
        """Return the wait after `attempt` (1 for the first); never negative, never above `cap`."""
        if not self.base:
            return timedelta(0)
        try:  # in floats: a whole factor's power would be a number of millions of digits
            seconds = self.base.total_seconds() * float(self.factor) ** max(attempt - 1, 0)
        except OverflowError:
            seconds = math.inf
        seconds = min(seconds, self.cap.total_seconds())
        return timedelta(seconds=seconds * (1 - self.jitter * chance()))


RetryPolicy = Backoff | Callable[[int, BaseException], timedelta | None]


def next_delay(
    *,
    attempt: int,
    max_attempts: int,
    exception: BaseException,
    policy: RetryPolicy,
    no_retry: tuple[type[BaseException], ...] = (),
) -> timedelta | None:
    """Return the wait before the next attempt, or None if the job has failed for good.

    `policy` may be a callable of (attempt, exception) that returns a delay or None. If it raises or
    returns nonsense, the default backoff is used: the path that records a failure must not fail.
    """
    if attempt >= max_attempts:
        return None
    try:
        if isinstance(exception, (DoNotRetry, InvalidPayload, *no_retry)):
            return None
        if isinstance(policy, Backoff):
            return policy.delay(attempt)
        delay = policy(attempt, exception)
        if delay is None:
            return None
        longest: timedelta = RETRY_DELAY.most
        return min(max(delay, timedelta(0)), longest)
    except BaseException:  # the user's policy may raise anything
        return Backoff().delay(attempt)

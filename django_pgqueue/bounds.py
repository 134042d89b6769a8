"""The one table of what a user may give, by OPTIONS, `@task` or a flag: default, least and most."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple


class Bound(NamedTuple):
    """The domain of one number or duration, the same wherever it is written."""

    default: Any
    least: Any
    most: Any

    def holds(self, value: Any) -> bool:
        """Whether `value`, of the right type, lies in it."""
        return bool(self.least <= value <= self.most)


_TICK = timedelta(milliseconds=100)
_NOTHING = timedelta(0)
_DAY = timedelta(days=1)

LEASE = Bound(timedelta(seconds=30), _TICK, 365 * _DAY)
HEARTBEAT = Bound(None, _TICK, 365 * _DAY)  # and at most half of the lease
TIMEOUT = Bound(None, _TICK, 3650 * _DAY)
POLL_INTERVAL = Bound(timedelta(seconds=1), timedelta(milliseconds=10), _DAY)
SHUTDOWN_TIMEOUT = Bound(timedelta(seconds=30), _NOTHING, _DAY)
KEEP_DONE = Bound(_DAY, _NOTHING, 36500 * _DAY)
KEEP_FAILED = Bound(14 * _DAY, _NOTHING, 36500 * _DAY)
RETRY_DELAY = Bound(None, _NOTHING, 3650 * _DAY)
RUN_AFTER = Bound(None, _NOTHING, 36500 * _DAY)
MAX_ATTEMPTS = Bound(5, 1, 1_000_000)
CONCURRENCY = Bound(4, 1, 1000)
MAX_TASKS = Bound(None, 1, 2**31)

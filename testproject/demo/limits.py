"""The demo ends by itself, in good order."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType


class DemoFailed(Exception):
    """Something that the demo shows did not hold; the message says what."""


@contextmanager
def ending_within(limit: timedelta) -> Iterator[None]:
    """Raise DemoFailed in the block after `limit`, and SystemExit at SIGTERM or SIGHUP, to tidy up."""

    def too_late(signum: int, frame: FrameType | None) -> None:
        raise DemoFailed(f"the whole demo ends within {limit.total_seconds():.0f} s")

    def leave(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    handlers = {signal.SIGALRM: too_late, signal.SIGTERM: leave, signal.SIGHUP: leave}
    before = {signum: signal.signal(signum, handler) for signum, handler in handlers.items()}
    signal.setitimer(signal.ITIMER_REAL, limit.total_seconds())
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for signum, handler in before.items():
            signal.signal(signum, handler)

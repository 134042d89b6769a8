"""Wait for facts, and never for longer than the demo may take."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType

LOOK_EVERY = timedelta(milliseconds=50)


class DemoFailed(Exception):
    """Something that the demo shows did not hold; the message says what."""


def wait_until(
    holds: Callable[[], bool], what: str, *, within: timedelta, meanwhile: Callable[[], None]
) -> None:
    """Return once `holds()`. Raises DemoFailed, naming `what`, when it takes longer than `within`."""
    deadline = time.monotonic() + within.total_seconds()
    while not holds():
        if time.monotonic() > deadline:
            raise DemoFailed(f"within {within.total_seconds():.0f} s: {what}")
        meanwhile()
        threading.Event().wait(LOOK_EVERY.total_seconds())


@contextmanager
def ending_within(limit: timedelta) -> Iterator[None]:
    """Raise DemoFailed in the block after `limit`, and SystemExit at SIGTERM or SIGHUP, so that it cleans up."""

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

"""Wait for a fact, never for a guess."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta

LOOK_EVERY = timedelta(milliseconds=50)


def wait_until(
    holds: Callable[[], bool],
    what: str,
    *,
    within: timedelta,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Return once `holds()`; call `meanwhile` between two looks. Raises TimeoutError, naming `what`."""
    deadline = time.monotonic() + within.total_seconds()
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"within {within.total_seconds():.0f} s: {what}")
        meanwhile()
        threading.Event().wait(LOOK_EVERY.total_seconds())

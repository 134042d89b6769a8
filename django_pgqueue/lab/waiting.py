"""Wait for a fact, never for a guess."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

LOOK_EVERY = timedelta(milliseconds=20)
PATIENCE = timedelta(seconds=20)


class Unreached(AssertionError):
    """A fact that was waited for did not come true in time."""


def until(
    holds: Callable[[], object],
    what: str | Callable[[], str],
    *,
    within: timedelta = PATIENCE,
    every: timedelta = LOOK_EVERY,
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Return once `holds()`; call `meanwhile` between two looks. Raises Unreached, naming `what`, after `within`."""
    deadline = time.monotonic() + within.total_seconds()
    while not holds():
        if time.monotonic() > deadline:
            name = what if isinstance(what, str) else what()
            raise Unreached(f"not within {within.total_seconds():g} s: {name}")
        meanwhile()
        pause(every.total_seconds())


def pause(seconds: float) -> None:
    """Let time pass: for the load of a soak, never to hope that something has happened."""
    threading.Event().wait(seconds)

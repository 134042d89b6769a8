"""Wait for a fact, never for a guess."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LOOK_EVERY_SECONDS = 0.02


class Unreached(AssertionError):
    """A fact that a scenario waited for did not come true in time."""


def until(holds: Callable[[], object], what: str, *, within: float = 20.0) -> None:
    """Return once `holds()`. Raises Unreached, naming `what`, after `within` seconds."""
    deadline = time.monotonic() + within
    while not holds():
        if time.monotonic() > deadline:
            raise Unreached(f"not within {within:g} s: {what}")
        pause(LOOK_EVERY_SECONDS)


def pause(seconds: float) -> None:
    """Let time pass: for the load of a soak, never to hope that something has happened."""
    threading.Event().wait(seconds)

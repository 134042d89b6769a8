"""SIGTERM and SIGINT: a handler only notes that one came; nothing is ever raised inside the worker's code."""

from __future__ import annotations

import os
import select
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class OsSignals:
    """Counts SIGTERM and SIGINT while installed, and lets the main thread wait for them.

    Installed only on the main thread (elsewhere Python allows no handlers, and the owner of the process has
    its own). The wait is on a pipe, because an Event may not be set in a handler that interrupted its wait.
    """

    def __init__(self) -> None:
        self.count = 0
        self.last: int | None = None
        self.installed = threading.current_thread() is threading.main_thread()
        self._previous: dict[int, Any] = {}
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def __enter__(self) -> OsSignals:
        if self.installed:
            for number in SIGNALS:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self._reader)
        os.close(self._writer)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.last = number
        self.poke()

    def poke(self) -> None:
        """End a wait; also from another thread."""
        with suppress(OSError):  # full, so a wait will end anyway; or closed, so nobody waits
            os.write(self._writer, b"!")

    def wait(self, seconds: float) -> None:
        """Wait for a signal or a poke, at most `seconds`."""
        ready, _, _ = select.select([self._reader], [], [], seconds)
        if ready:
            os.read(self._reader, 4096)

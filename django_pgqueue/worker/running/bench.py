"""One job on one thread: clean, time, run, clean; and a fork that comes back from a job goes no further."""

from __future__ import annotations

import os
import time

from ...holding import Holding
from ...outcomes import Ending
from .cleaning import Cleaning
from .execution import Execution


class Bench:
    """Where one thread runs its jobs, one after the other; `name` is what its sessions say they are."""

    def __init__(self, execution: Execution, *, name: str) -> None:
        self._execution = execution
        self._cleaning = Cleaning(name=name)
        self._pid = os.getpid()

    def run(self, holding: Holding) -> tuple[Ending | None, float]:
        """Run the job of a lease; return its ending and its seconds. Raises JobTimeout if it is given up just then."""
        self._cleaning.before()
        began = time.monotonic()
        ending = self._execution.run(holding)
        if os.getpid() != self._pid:
            os._exit(0)  # a fork that came back from the task: nothing here is its own
        seconds = time.monotonic() - began
        self._cleaning.after()
        return ending, seconds

    def clean(self) -> None:
        """Clean up after code that was no job."""
        self._cleaning.after()

    def close(self) -> None:
        """Clean up for good, at the thread's end."""
        self._cleaning.close()

"""A real `manage.py runworker` process that can be frozen, thawed, stopped and killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

from testproject.waiting import wait_until

MANAGE = Path(__file__).resolve().parent.parent / "manage.py"


class WorkerProcess:
    """One worker, its output in `log`. Leaving it as a context manager kills and reaps it, frozen or not."""

    def __init__(self, *flags: str, log: Path, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            # A session of its own: Ctrl-C at the terminal is for the parent, which then ends its workers.
            self.process = subprocess.Popen(
                [sys.executable, str(MANAGE), "runworker", *flags],
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> "WorkerProcess":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def returncode(self) -> int | None:
        """Return the exit code, or None while the process lives."""
        return self.process.poll()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ask for a graceful stop; `wait` tells how it went."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float = 20) -> int:
        """Return the exit code. Raises subprocess.TimeoutExpired."""
        return self.process.wait(seconds)

    def wait_for(self, holds: Callable[[], bool], seconds: float = 20, what: str = "it holds") -> None:
        """Return once `holds()`. Raises AssertionError with the last lines if it ends, or not in time."""
        try:
            wait_until(holds, what, within=timedelta(seconds=seconds), meanwhile=self._must_live)
        except TimeoutError as late:
            raise AssertionError(f"{late}\n{self._last_lines()}") from late

    def _must_live(self) -> None:
        if self.returncode is not None:
            raise AssertionError(f"the worker ended with {self.returncode}\n{self._last_lines()}")

    def _last_lines(self) -> str:
        return "\n".join(self.output.splitlines()[-20:])

    def kill(self) -> None:
        """Kill -9 and reap; nothing to do for a process that has ended."""
        self.process.kill()
        self.process.wait()

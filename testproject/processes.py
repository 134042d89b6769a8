"""A real `manage.py runworker` process that can be frozen, thawed, stopped and killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

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

    def kill(self) -> None:
        """Kill -9 and reap; nothing to do for a process that has ended."""
        self.process.kill()
        self.process.wait()

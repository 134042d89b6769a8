"""The lab's child processes: workers and migrations, on the lab's settings and the disposable database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .target import NoServer, Target
from .waiting import Unreached, until

ROOT = Path(__file__).resolve().parent.parent.parent
LAST_LINES = 25


def environment(target: Target, facts: Target, options: dict[str, Any]) -> dict[str, str]:
    """Return the environment of a child: `target` for its work, `facts` for what it tells the lab."""
    given = {"database": target.settings(), "facts": dict(facts.params), "options": options}
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith(("PG", "DJANGO_"))},
        "DJANGO_SETTINGS_MODULE": "django_pgqueue.lab.settings",
        "PGQUEUE_LAB": json.dumps(given),
        "PGQUEUE_LAB_PARENT": str(os.getpid()),
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONUNBUFFERED": "1",
    }


def migrate(target: Target, folder: Path) -> None:
    """Make the queue's tables in a fresh database. Raises NoServer with the error output."""
    done = subprocess.run(
        [sys.executable, "-m", "django", "migrate", "--verbosity", "0", "--skip-checks"],
        env=environment(target, target, {}),
        cwd=folder,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise NoServer(f"the queue's tables could not be made in {target.name}: {last}")


class Process:
    """A real child process, its output in a file. `close` kills and reaps it, stopped or not."""

    def __init__(
        self, name: str, command: Sequence[str], *, env: dict[str, str], log: Path, user: str | None = None
    ) -> None:
        self.name = name
        self.log = log
        with self.log.open("ab") as output:
            # A session of its own: Ctrl-C at the terminal is for the lab, which then ends its children.
            self._process = subprocess.Popen(
                command,
                env=env,
                cwd=log.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=user,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, None while it lives."""
        return self._process.poll()

    @property
    def output(self) -> str:
        """Everything it has written."""
        return self.log.read_text(errors="replace")

    @property
    def last_lines(self) -> str:
        """The end of what it has written."""
        return "\n".join(self.output.splitlines()[-LAST_LINES:])

    @property
    def works(self) -> bool:
        """Whether it has said that it works, so that it takes a SIGTERM as a wish; false before its end, too."""
        return self.returncode is None and "; lease " in self.output

    def freeze(self) -> None:
        """SIGSTOP, and wait until the kernel has stopped it."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """SIGTERM."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, and reap."""
        self._process.kill()
        self._process.wait()

    def wait(self, seconds: float = 20.0) -> int:
        """Return the exit code. Raises Unreached."""
        until(lambda: self.returncode is not None, f"{self.name} ends", within=seconds)
        code = self.returncode
        assert code is not None
        return code

    def wait_for_output(self, text: str, seconds: float = 30.0) -> None:
        """Return once it has written `text`. Raises Unreached, with its last lines."""
        try:
            until(lambda: text in self.output or self.returncode is not None, text, within=seconds)
        except Unreached as error:
            raise Unreached(f"{error}\n{self.last_lines}") from None
        if text not in self.output:
            raise Unreached(
                f"{self.name} ended with {self.returncode} before it said {text!r}\n{self.last_lines}"
            )

    def close(self) -> None:
        """Kill and reap, if it still lives."""
        if self._process.poll() is None:
            self.kill()


__all__ = ["Process", "environment", "migrate"]

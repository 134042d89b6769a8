"""Real child processes that can be frozen, thawed, stopped and killed: workers, what stands beside them, migrations.

Importing this needs neither settings nor models: a project's settings and its tests use it too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from .target import NoServer, Target
from .waiting import Unreached, until

ROOT = Path(__file__).resolve().parent.parent.parent
LAST_LINES = 25
WORKS = "; lease "


def environment(target: Target, facts: Target, options: dict[str, Any]) -> dict[str, str]:
    """Return the environment of a child of the lab: `target` for its work, `facts` for what it tells the lab."""
    given = {"database": target.settings(), "facts": dict(facts.params), "options": options}
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith(("PG", "DJANGO_"))},
        "DJANGO_SETTINGS_MODULE": "django_pgqueue.lab.settings",
        "PGQUEUE_LAB": json.dumps(given),
        "PGQUEUE_LAB_PARENT": str(os.getpid()),
        "PYTHONPATH": os.pathsep.join(path),
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
    """A real child process with all of its environment, its output in `log`. Leaving it kills and reaps it."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str],
        cwd: Path | None = None,
        user: str | None = None,
    ) -> None:
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            # A session of its own: Ctrl-C at the terminal is for the parent, which then ends its children.
            self._process = subprocess.Popen(
                command,
                env={**env, "PYTHONUNBUFFERED": "1"},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=user,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

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

    def send(self, number: int) -> None:
        """Send a signal; one that has ended gets none."""
        self._process.send_signal(number)

    def freeze(self) -> None:
        """SIGSTOP, and wait until the kernel has stopped it."""
        self.send(signal.SIGSTOP)
        with suppress(ChildProcessError):  # it has ended, and whoever waits for it is told
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        """SIGCONT."""
        self.send(signal.SIGCONT)

    def stop(self) -> None:
        """SIGTERM; `wait` tells how it went."""
        self.send(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, and reap; nothing to do for one that has ended."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Kill and reap, frozen or not, if it still lives."""
        self.kill()

    def wait(self, seconds: float = 20.0) -> int:
        """Return the exit code. Raises Unreached, with its last lines."""
        until(
            lambda: self.returncode is not None,
            lambda: f"{self.name} ends\n{self.last_lines}",
            within=timedelta(seconds=seconds),
        )
        code = self.returncode
        assert code is not None
        return code

    def wait_for(self, holds: Callable[[], object], seconds: float = 20.0, what: str = "it holds") -> None:
        """Return once `holds()`. Raises Unreached, with its last lines, if it ends before, or not in time."""

        def must_live() -> None:
            # Looked at once more: its last words may have come between the look and its end.
            if self.returncode is not None and not holds():
                raise Unreached(f"{self.name} ended with {self.returncode} before {what}\n{self.last_lines}")

        until(
            holds,
            lambda: f"{what}\n{self.last_lines}",
            within=timedelta(seconds=seconds),
            meanwhile=must_live,
        )

    def wait_for_output(self, text: str, seconds: float = 30.0) -> None:
        """Return once it has written `text`. Raises Unreached, with its last lines."""
        self.wait_for(lambda: text in self.output, seconds, f"it says {text!r}")


class WorkerProcess(Process):
    """A real `runworker FLAGS`: of the project of `manage`, its manage.py, or of `env`'s DJANGO_SETTINGS_MODULE."""

    def __init__(
        self,
        *flags: str,
        log: Path,
        env: Mapping[str, str],
        name: str = "the worker",
        manage: Path | None = None,
        cwd: Path | None = None,
    ) -> None:
        django = ["-m", "django"] if manage is None else [str(manage)]
        super().__init__(name, [sys.executable, *django, "runworker", *flags], log=log, env=env, cwd=cwd)

    @property
    def has_said_its_id(self) -> bool:
        """Whether the whole line is there that begins with it."""
        return any(line.startswith("Worker ") for line in self.output.split("\n")[:-1])

    @property
    def id(self) -> str:
        """The worker's id, from the line it prints at its start. Raises Unreached if it has not."""
        for line in self.output.splitlines():
            if line.startswith("Worker "):
                return line.split()[1].rstrip(":")
        raise Unreached(f"{self.name} has not said its id\n{self.last_lines}")

    @property
    def works(self) -> bool:
        """Whether it has said that it works, so that it takes a SIGTERM as a wish; false before its end, too."""
        return self.returncode is None and WORKS in self.output

    def wait_working(self) -> None:
        """Return once it has said that it works. Raises Unreached, with its last lines."""
        self.wait_for_output(WORKS)


class Children:
    """The processes of one stage, each with a numbered log in `folder`; `close` kills and reaps them all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.all: list[Process] = []
        folder.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """End them, frozen or not."""
        for process in self.all:
            process.close()

    def process(
        self, name: str, command: Sequence[str | Path], *, env: Mapping[str, str], user: str | None = None
    ) -> Process:
        """Start any program, in the folder."""
        process = Process(name, command, log=self._log(name), env=env, cwd=self.folder, user=user)
        self.all.append(process)
        return process

    def worker(
        self, name: str, *flags: str, env: Mapping[str, str], manage: Path | None = None
    ) -> WorkerProcess:
        """Start a worker that goes by `name`, in the folder: a project that lies where this one works is not loaded."""
        flags = ("--worker-id", name, *flags)
        log = self._log(name)
        worker = WorkerProcess(*flags, log=log, env=env, name=name, manage=manage, cwd=self.folder)
        self.all.append(worker)
        return worker

    def _log(self, name: str) -> Path:
        return self.folder / f"{len(self.all)}-{name}.log"

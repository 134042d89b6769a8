"""A queue as the benchmark sees it: an environment, a database, and commands to enqueue and to work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from django_pgqueue.lab.processes import Process
from django_pgqueue.lab.waiting import Unreached

from .server import WORK

ROOT = Path(__file__).resolve().parent.parent
STOP_SECONDS = 15
STAMPS = WORK / "stamps"


class Project:
    """One queue on one database; `adapter` names the module in benchmarks/adapters."""

    def __init__(self, adapter: str, url: str, *, python: str = sys.executable) -> None:
        self.adapter = adapter
        self.url = url
        self.python = python
        described = self.call("describe")
        self.tables: list[str] = described["tables"]
        self.left: str = described["left"]
        self.check: str = described["check"]
        self.mark: str = described["mark"]
        self.configurations: dict[str, list[str]] = described["workers"]

    def call(self, command: str, *arguments: object) -> Any:
        """Run one of the adapter's commands in its environment, and return its answer."""
        done = subprocess.run(
            [self.python, "-m", "benchmarks.adapters", self.adapter, command, *map(str, arguments)],
            cwd=ROOT,
            env=self.environment(),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{self.adapter} {command} failed:\n{done.stderr[-3000:]}")
        return json.loads(done.stdout.splitlines()[-1])

    def environment(self) -> dict[str, str]:
        """Return the environment of its processes."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("DJANGO_")}
        if self.adapter in ("pgqueue", "django_tasks_db", "django_ox"):
            kept["DJANGO_SETTINGS_MODULE"] = f"benchmarks.adapters.{self.adapter}"
        return {**kept, "DATABASE_URL": self.url, "BENCHMARK_STAMPS": str(STAMPS)}

    @contextmanager
    def working(self, arguments: Sequence[str], count: int = 1) -> Iterator[list[Process]]:
        """Run that many workers; they are asked to stop at the end, and killed if they do not."""
        log = WORK / f"{self.adapter}.log"
        command = [self.python, *arguments]
        with ExitStack() as stack:
            workers = [
                stack.enter_context(Process(self.adapter, command, log=log, env=self.environment(), cwd=ROOT))
                for _ in range(count)
            ]
            try:
                yield workers
            finally:
                for worker in workers:
                    worker.stop()
                with suppress(Unreached):  # those that are left are killed
                    for worker in workers:
                        worker.wait(STOP_SECONDS)

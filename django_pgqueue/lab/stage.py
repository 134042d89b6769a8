"""What a scenario works with: sessions, workers, proxies, gates, and the facts it waits for."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from .processes import Children, Process, WorkerProcess, environment
from .proxy import Proxy
from .recorder import Recorder
from .scenario import Skip
from .servers import Server
from .session import Session
from .target import Target
from .waiting import PATIENCE, until

TASKS = "django_pgqueue.lab.tasks"
# Long enough for a busy machine to beat in time, short enough to wait for.
LEASE_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the lab runs: the disposable database, whether a pooler stands before it, the lab's own server if any."""

    target: Target
    pooled: bool
    listen: bool
    folder: Path
    server: Server | None = None


class Stage:
    """One scenario's own sessions, processes and proxies; leaving it ends them all."""

    def __init__(self, place: Place, recorder: Recorder, *, seed: int) -> None:
        self.place = place
        self.target = place.target
        self.record = recorder
        self.random = random.Random(seed)
        self.folder = place.folder / recorder.log.name
        self._children = Children(self.folder)
        self._stack = ExitStack()
        self._facts: Session | None = None

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._children.close()
        self._stack.close()

    @property
    def processes(self) -> list[Process]:
        """Every process of the scenario, also those that have ended, in the order of their start."""
        return self._children.all

    @property
    def facts(self) -> Session:
        """The session by which the lab looks at what has happened."""
        if self._facts is None:
            self._facts = self.session("facts")
        return self._facts

    def session(self, name: str, target: Target | None = None) -> Session:
        """Open a named session."""
        session = Session(name, target or self.target, self.record)
        self._stack.callback(session.close)
        return session

    def proxy(self, target: Target | None = None) -> Proxy:
        """Open a proxy before the server. Raises Skip if the server takes no plain connection by it."""
        proxy = self._stack.enter_context(Proxy(target or self.target))
        try:
            proxy.target.connect().close()
        except Exception as error:
            raise Skip(f"the server refuses an unencrypted connection through the proxy: {error}") from None
        return proxy

    def process(
        self, name: str, command: Sequence[str], *, env: dict[str, str], user: str | None = None
    ) -> Process:
        """Start a process that ends with the scenario; its output goes to a file of its own."""
        return self._children.process(name, command, env=env, user=user)

    def worker(
        self,
        letter: str,
        *,
        via: Target | None = None,
        concurrency: int = 1,
        lease: float = LEASE_SECONDS,
        fencing: str = "token",
        listen: bool | None = None,
        more: Sequence[str] = (),
        env: dict[str, str] | None = None,
        wait: bool = True,
        quiet: bool = False,
        pool: str = "threads",
    ) -> WorkerProcess:
        """Start a real `runworker` named `worker-LETTER`, and wait until it says that it works."""
        options: dict[str, Any] = {"lease": lease, "fencing": fencing}
        options["listen"] = self.place.listen if listen is None else listen
        name = f"worker-{letter}"
        flags = f"--pool {pool} --concurrency {concurrency} --interval 0.1 --shutdown-timeout 20".split()
        child = environment(via or self.target, self.target, options)
        worker = self._children.worker(name, *flags, *more, env={**child, **(env or {})})
        if not quiet:
            self.record.event(f"{name} started: runworker --concurrency {concurrency} --lease {lease:g}")
        if wait:
            worker.wait_working()
        return worker

    def enqueue(self, task: str, count: int = 1, *, max_attempts: int = 1000, **kwargs: Any) -> list[int]:
        """Insert jobs of one of the lab's tasks, as any language could."""
        return [
            row[0]
            for row in self.facts.run(
                "INSERT INTO django_pgqueue_job (task, payload, max_attempts)"
                " SELECT %s, %s::jsonb, %s FROM generate_series(1, %s) RETURNING id",
                f"{TASKS}.{task}",
                json.dumps({"args": [], "kwargs": kwargs}),
                max_attempts,
                count,
            )
        ]

    def open_gate(self, name: str) -> None:
        """Let the jobs that wait for the gate go on."""
        self.facts.quietly("INSERT INTO lab_gates VALUES (%s) ON CONFLICT DO NOTHING", name)
        self.record.event(f"the gate {name!r} is opened")

    def until(self, what: str, holds: Callable[[], object], *, within: timedelta = PATIENCE) -> None:
        """Wait for a fact. Raises Unreached."""
        until(holds, what, within=within)
        self.record.event(f"seen: {what}")

    def until_row(self, what: str, statement: str, *values: object, within: timedelta = PATIENCE) -> None:
        """Wait until a statement returns true."""
        self.until(what, lambda: self.facts.value(statement, *values), within=within)

    def until_reached(self, job_id: int, generation: int = 1, point: str = "body") -> None:
        """Wait until a generation of a job says that it has reached a point."""
        self.until_row(
            f"generation {generation} of job {job_id} has reached {point!r}",
            "SELECT EXISTS (SELECT FROM lab_marks WHERE job_id = %s AND generation = %s AND point = %s)",
            *(job_id, generation, point),
        )

    def until_state(
        self, job_id: int, state: str, generation: int | None = None, *, within: timedelta = PATIENCE
    ) -> None:
        """Wait until a job is in a state, by any generation or by this one."""
        of = "" if generation is None else f" at generation {generation}"
        self.until_row(
            f"job {job_id} is {state}{of}",
            "SELECT state = %s AND generation = COALESCE(%s, generation) FROM django_pgqueue_job WHERE id = %s",
            *(state, generation, job_id),
            within=within,
        )

    def until_all_ended(self, *, within: timedelta = timedelta(seconds=30)) -> None:
        """Wait until no job is live."""
        self.until_row(
            "every job has ended",
            "SELECT count(*) = 0 FROM django_pgqueue_job WHERE state IN ('scheduled', 'ready', 'running')",
            within=within,
        )

    def check(self, text: str, holds: object, seen: object = None) -> bool:
        """Assert something."""
        return self.record.check(text, bool(holds), seen)

    def check_value(self, text: str, statement: str, expected: object) -> bool:
        """Assert the value of a statement, which is shown."""
        reply = self.facts.run(statement)
        value = reply[0][0] if isinstance(reply, list) and reply else reply
        return self.record.check(text, value == expected, value)

    def stop_workers(self) -> None:
        """Stop every living worker gracefully, and assert that each says 0."""
        workers = [process for process in self.processes if isinstance(process, WorkerProcess)]
        living = sorted(
            (worker for worker in workers if worker.returncode is None), key=lambda worker: worker.name
        )
        for worker in living:
            worker.wait_working()
            worker.stop()
        for worker in living:
            code = worker.wait(30)
            self.record.check(f"{worker.name} stopped gracefully", code == 0, code)

    def need(self, program: str) -> str:
        """Return the path of a program. Raises Skip if it is not installed."""
        path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")
        if path is None:
            raise Skip(f"{program} is not installed")
        return path

    def need_server(self) -> Server:
        """Return the server that the lab has started. Raises Skip if it has not."""
        if self.place.server is None:
            raise Skip("it stops the server, so it needs --embedded")
        return self.place.server

"""What a test needs around real workers: to start them, to see what they do, and to reach into the database.

All on plain connections of the test's own, so that it works on a server that the test stops and starts.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import psycopg
from psycopg.rows import dict_row

from django_pgqueue.lab.processes import Children
from django_pgqueue.lab.processes import WorkerProcess as Worker
from django_pgqueue.lab.waiting import until
from testproject import MANAGE

LEASE = 1.5
DEFAULT_FLAGS = ("--lease", str(LEASE), "--interval", "0.1", "--shutdown-timeout", "10", "--concurrency", "4")
TASKS = "tests.processes.tasks"

Row = dict[str, Any]


class Stage:
    """Workers on one database, their notes and gates."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self._children = Children(folder)
        self._session: psycopg.Connection[Row] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a child process."""
        return {
            **os.environ,
            "DATABASE_URL": self.url,
            "DJANGO_SETTINGS_MODULE": "tests.processes.settings",
            "PROCESS_FILES": str(self.folder),
        }

    def close(self) -> None:
        """Kill and reap every worker, frozen or not."""
        self._children.close()
        if self._session is not None:
            self._session.close()

    # workers

    def worker(
        self,
        *flags: str,
        name: str | None = None,
        settings: dict[str, Any] | None = None,
        faults: str = "",
        wait: bool = True,
        env: dict[str, str] | None = None,
    ) -> Worker:
        """Start a worker; its flags come after the defaults, so they win. With `wait` it is returned once it works."""
        name = name or f"w{len(self._children.all) + 1}"
        changes = {"PROCESS_SETTINGS": json.dumps(settings or {}), "PROCESS_FAULTS": faults, **(env or {})}
        worker = self._children.worker(
            name, *DEFAULT_FLAGS, *flags, env={**self.environment, **changes}, manage=MANAGE
        )
        if wait:
            self.wait_working(worker)
        return worker

    def wait_working(self, *workers: Worker, url: str | None = None) -> None:
        """Wait until each worker has written its own row, which its heartbeat does."""
        for worker in workers:
            worker.wait_for(
                lambda worker=worker: (
                    worker.has_said_its_id
                    and self.count("django_pgqueue_worker", "id = %s", worker.id, url=url) == 1
                ),
                what="the worker works",
            )

    @contextmanager
    def child(self, *command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run another `manage.py` command, its output in a pipe; it is killed and reaped at last."""
        with subprocess.Popen(
            [sys.executable, str(MANAGE), *command],
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def forks(self) -> Iterator["Forks"]:
        """Give a way to start many workers fast."""
        with subprocess.Popen(
            [sys.executable, "-m", "tests.processes.forking"],
            env=self.environment,
            cwd=MANAGE.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as server:
            try:
                yield Forks(server, self.folder)
            finally:
                os.killpg(server.pid, signal.SIGKILL)  # it and the workers that are left

    # notes and gates

    def open(self, gate: str) -> None:
        """Let the jobs that wait for the gate go on."""
        (self.folder / f"gate-{gate}").touch()

    def notes(self, what: str | None = None, job: int | None = None) -> list[Row]:
        """Return the notes of jobs and receivers, oldest first."""
        file = self.folder / "notes"
        if not file.exists():
            return []
        found = [json.loads(line) for line in file.read_text().splitlines()]
        return [
            entry
            for entry in found
            if (what is None or entry["what"] == what) and (job is None or entry["job"] == job)
        ]

    def wait_note(self, what: str, job: int | None = None, *, count: int = 1, seconds: float = 20) -> Row:
        """Return the note number `count` of its kind once it is there."""
        self.wait(lambda: len(self.notes(what, job)) >= count, f"note {what!r} of job {job}", seconds)
        return self.notes(what, job)[count - 1]

    # the database

    @contextmanager
    def connect(self, url: str | None = None) -> Iterator[psycopg.Connection[Row]]:
        """Give a session of the test's own, in autocommit."""
        with psycopg.connect(
            url or self.url, autocommit=True, row_factory=dict_row, application_name="the test"
        ) as session:
            yield session

    def sql(self, statement: str, *values: object, url: str | None = None) -> list[Row]:
        """Run one statement; on a new session if the server has ended the last one."""
        if url is not None:
            with self.connect(url) as session:
                return self._run(session, statement, values)
        if self._session is not None:
            try:
                return self._run(self._session, statement, values)
            except psycopg.OperationalError:
                if not self._session.closed:
                    raise
        self._session = psycopg.connect(
            self.url, autocommit=True, row_factory=dict_row, application_name="the test"
        )
        return self._run(self._session, statement, values)

    def _run(self, session: psycopg.Connection[Row], statement: str, values: tuple[object, ...]) -> list[Row]:
        cursor = session.execute(cast(Any, statement), values or None, prepare=False)
        return cursor.fetchall() if cursor.description else []

    def count(self, table: str, condition: str = "true", *values: object, url: str | None = None) -> int:
        """Return how many rows hold."""
        return int(self.sql(f"SELECT count(*) AS n FROM {table} WHERE {condition}", *values, url=url)[0]["n"])

    def enqueue(self, task: str, *args: object, url: str | None = None, **columns: object) -> int:
        """Insert a job of tests.processes.tasks by plain SQL, and return its id."""
        path = task if "." in task else f"{TASKS}.{task}"
        values = {"task": path, "payload": json.dumps({"args": args, "kwargs": {}}), **columns}
        places = ", ".join(["%s"] * len(values))
        rows = self.sql(
            f"INSERT INTO django_pgqueue_job ({', '.join(values)}) VALUES ({places}) RETURNING id",
            *values.values(),
            url=url,
        )
        return int(rows[0]["id"])

    def enqueue_many(self, task: str, number: int, **columns: object) -> None:
        """Insert many jobs without arguments in one statement."""
        values = {"task": f"{TASKS}.{task}", **columns}
        places = ", ".join(["%s"] * len(values))
        self.sql(
            f"INSERT INTO django_pgqueue_job ({', '.join(values)}) SELECT {places} FROM generate_series(1, %s)",
            *values.values(),
            number,
        )

    def job(self, job_id: int, url: str | None = None) -> Row:
        """Return the job's row."""
        return self.sql("SELECT * FROM django_pgqueue_job WHERE id = %s", job_id, url=url)[0]

    def brief(self, job_id: int) -> tuple[str, int, int]:
        """Return the job's state, generation and attempts."""
        job = self.job(job_id)
        return job["state"], job["generation"], job["attempts"]

    def wait_state(self, job_id: int, state: str, seconds: float = 20, url: str | None = None) -> Row:
        """Return the job's row once it is in the state."""
        self.wait(
            lambda: self.job(job_id, url)["state"] == state,
            lambda: f"job {job_id} is {state}; {self.job(job_id, url)}\n{self.logs()}",
            seconds,
        )
        return self.job(job_id, url)

    def wait_all_done(self, number: int, seconds: float = 60) -> None:
        """Wait until that many jobs are done."""
        self.wait(
            lambda: self.count("django_pgqueue_job", "state = 'done'") >= number,
            lambda: f"{number} done; {self.states()}\n{self.logs()}",
            seconds,
        )

    def states(self) -> dict[str, int]:
        """Return how many jobs there are in each state."""
        rows = self.sql("SELECT state, count(*) AS n FROM django_pgqueue_job GROUP BY state")
        return {row["state"]: row["n"] for row in rows}

    def failures(self, job_id: int) -> list[tuple[int, str, str]]:
        """Return generation, kind and exception class of the job's failures, oldest first."""
        rows = self.sql(
            "SELECT generation, kind, exception_class FROM django_pgqueue_failure WHERE job_id = %s ORDER BY id",
            job_id,
        )
        return [(row["generation"], row["kind"], row["exception_class"]) for row in rows]

    def rejections(self, job_id: int) -> list[tuple[int, int, str, str]]:
        """Return generation, current generation, action and verdict of the job's rejections, oldest first."""
        rows = self.sql("SELECT * FROM django_pgqueue_rejection WHERE job_id = %s ORDER BY id", job_id)
        return [(row["generation"], row["current_generation"], row["action"], row["verdict"]) for row in rows]

    def sessions(self, worker: Worker, role: str = "") -> list[Row]:
        """Return the worker's sessions by what application_name says."""
        name = f"pgqueue {worker.id} {role}"
        return self.sql(
            "SELECT *, clock_timestamp() - xact_start AS xact_age FROM pg_stat_activity WHERE application_name LIKE %s",
            name.rstrip() + "%",
        )

    def terminate(self, worker: Worker, role: str = "") -> int:
        """End the worker's sessions in that role; return how many there were, once they are gone."""
        pids = [row["pid"] for row in self.sessions(worker, role)]
        self.sql("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS pid", pids)
        self.wait(
            lambda: not self.sql("SELECT 1 FROM pg_stat_activity WHERE pid = ANY(%s)", pids),
            "the sessions are gone",
        )
        return len(pids)

    # waiting

    def wait(self, holds: Callable[[], bool], what: str | Callable[[], str], seconds: float = 20) -> None:
        """Return once it holds. Raises AssertionError."""
        until(holds, what, within=timedelta(seconds=seconds))

    def stays(self, holds: Callable[[], bool], seconds: float, what: str) -> None:
        """Look again and again for a time; fail at the first look that it does not hold."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert holds(), what
            threading.Event().wait(0.05)

    def logs(self) -> str:
        """Return the last lines of every worker, for a failure's message."""
        return "\n".join(
            f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-30:])
            for log in sorted(self.folder.glob("*.log"))
        )


class Forks:
    """Workers forked by `tests.processes.forking`."""

    def __init__(self, server: subprocess.Popen[str], folder: Path) -> None:
        self._server = server
        self._folder = folder

    def start(self, name: str, *flags: str) -> int:
        """Start a worker; return its process id."""
        return self._ask("start", str(self._folder / f"{name}.log"), *flags)

    def wait(self, pid: int) -> int:
        """Wait for its end; return the exit code."""
        return self._ask("wait", str(pid))

    def _ask(self, *words: str) -> int:
        assert self._server.stdin and self._server.stdout
        self._server.stdin.write(" ".join(words) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())


def is_alive(pid: int) -> bool:
    """Return whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

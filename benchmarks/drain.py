"""A drain: a backlog, workers that all begin at one moment, and what it took until the last job had ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg

from django_pgqueue.lab.processes import Process
from django_pgqueue.lab.waiting import until

from .project import Project
from .server import connect

LOOK_EVERY = timedelta(milliseconds=400)
SETTLE_SECONDS = 1.2
START_WITHIN = timedelta(minutes=1)
DRAIN_WITHIN = timedelta(minutes=10)
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
STATEMENTS = """
    SELECT sum(calls) FROM pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid
    WHERE d.datname = current_database() AND query NOT LIKE '%%pg_stat_statements%%'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What a drain measured. `wrong` counts jobs that were lost, run twice or refused: it must be 0.

    `given_back` counts jobs that a worker had claimed and released without having begun them.
    """

    jobs: int
    seconds: float
    wrong: int
    given_back: int
    wal_bytes: float
    statements: float | None
    worker_cpu_seconds: float

    @property
    def rate(self) -> float:
        """Jobs per second, by the database's clock."""
        return self.jobs / self.seconds


def drain(
    project: Project,
    arguments: Sequence[str],
    jobs: int,
    *,
    workers: int = 1,
    kind: str = "noop",
    keep: bool = False,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
    counted: bool = False,
) -> Drained:
    """Fill the table (emptied before, unless `keep`) and drain it; `around` is entered once it is filled.

    The workers start behind a lock of the table, so that neither their start nor their number of seconds counts:
    the time runs from the moment the lock is let go of until the last job's own end, both by the database's clock.
    """
    with connect(project.url) as session:
        if not keep:
            session.execute(f"TRUNCATE {', '.join(project.tables)} RESTART IDENTITY CASCADE")
        session.execute("CHECKPOINT")
        (mark,) = session.execute(project.mark).fetchone()
        project.call("fill", jobs, kind)
        session.execute(f"VACUUM ANALYZE {', '.join(project.tables)}")
        with around():
            return _run(session, project, arguments, jobs, workers, mark, counted)


def _run(
    session: psycopg.Connection,
    project: Project,
    arguments: Sequence[str],
    jobs: int,
    workers: int,
    mark: int,
    counted: bool,
) -> Drained:
    gate = psycopg.connect(project.url)
    gate.execute(f"LOCK TABLE {project.tables[0]} IN EXCLUSIVE MODE")
    before = _statements(session) if counted else None
    with project.working(arguments, workers) as processes:
        _wait_at(session, project.tables[0], workers, processes)
        wal = session.execute("SELECT pg_current_wal_insert_lsn()").fetchone()[0]
        cpu = sum(map(_cpu_seconds, processes))
        began: datetime = gate.execute("SELECT clock_timestamp()").fetchone()[0]
        gate.commit()
        until_empty(session, project, processes)
        cpu = sum(map(_cpu_seconds, processes)) - cpu
        written = session.execute("SELECT pg_current_wal_insert_lsn() - %s::pg_lsn", [wal]).fetchone()[0]
        after = _statements(session) if counted else None
    gate.close()
    right, total, last, *again = session.execute(project.check, {"mark": mark}).fetchone()
    return Drained(
        jobs=jobs,
        seconds=(last - began).total_seconds(),
        wrong=abs(jobs - right) + abs(total - jobs),
        given_back=sum(again),
        wal_bytes=float(written) / jobs,
        statements=None if before is None or after is None else float(after - before) / jobs,
        worker_cpu_seconds=cpu,
    )


def _statements(session: psycopg.Connection) -> int:
    return session.execute(STATEMENTS).fetchone()[0] or 0


def _wait_at(session: psycopg.Connection, table: str, workers: int, processes: list[Process]) -> None:
    """Return once at least one session per worker waits for the lock and no other has come for a while."""
    seen, since = 0, time.monotonic()

    def settled() -> bool:
        nonlocal seen, since
        (now,) = session.execute(WAITING, [table]).fetchone()
        if now != seen:
            seen, since = now, time.monotonic()
        return seen >= workers and time.monotonic() - since >= SETTLE_SECONDS

    until(
        settled,
        lambda: f"{workers} workers ask for jobs; {seen} sessions do",
        within=START_WITHIN,
        every=timedelta(milliseconds=50),
        meanwhile=lambda: _must_live(processes),
    )


def until_empty(session: psycopg.Connection, project: Project, processes: list[Process]) -> None:
    """Return once no job is left. Raises Unreached, and RuntimeError if a worker ends before."""
    session.execute("SET enable_seqscan = off")  # a look must not read the whole history
    until(
        lambda: not session.execute(project.left).fetchone()[0],
        f"{project.adapter} drains",
        within=DRAIN_WITHIN,
        every=LOOK_EVERY,
        meanwhile=lambda: project.adapter == "raw" or _must_live(processes),
    )


def _must_live(processes: list[Process]) -> None:
    for process in processes:
        if process.returncode is not None:
            raise RuntimeError(f"a worker ended with {process.returncode}:\n{process.last_lines}")


def _cpu_seconds(process: Process) -> float:
    """Return what the process has used so far, and 0 where /proc cannot tell."""
    try:
        with open(f"/proc/{process.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / 100

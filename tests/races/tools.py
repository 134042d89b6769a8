"""What the tests of the queue's core share: jobs, rows, a second session and a second thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
from django.db import connection, transaction

from django_pgqueue import leases, outcomes
from django_pgqueue.lab.waiting import until
from django_pgqueue.lease import Lease
from django_pgqueue.models import Job, Rejection

LONG = timedelta(seconds=30)
PATIENCE = timedelta(seconds=20)


def new_job(**columns: Any) -> int:
    """Insert a job as plain SQL from any language would, and return its id."""
    return Job.objects.create(**{"task": "shop.tasks.nothing", **columns}).pk


def new_jobs(count: int, **columns: Any) -> list[int]:
    rows = [Job(**{"task": "shop.tasks.nothing", **columns}) for _ in range(count)]
    return [job.pk for job in Job.objects.bulk_create(rows)]


def claim_one(worker: str = "A", **given: Any) -> Lease:
    (lease,) = leases.claim(worker=worker, **given)
    return lease


def expire(*job_ids: int, ago: timedelta = timedelta(seconds=1)) -> None:
    """Move the leases' end into the past by the database's clock, as the first article does."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE django_pgqueue_job SET lease_until = clock_timestamp() - %s WHERE id = ANY (%s)",
            [ago, list(job_ids)],
        )


def reclaimed(lease: Lease, worker: str = "B") -> Lease:
    """Let the lease expire and another worker reclaim the job."""
    expire(lease.job_id)
    (newer,) = leases.reclaim(worker=worker)
    assert newer.job_id == lease.job_id
    return newer


def row(job_id: int) -> Job:
    return Job.objects.get(pk=job_id)


def only_rejection(job_id: int) -> Rejection:
    return Rejection.objects.get(job_id=job_id)


def backend_pid() -> int:
    """Return the server process of the current thread's connection."""
    connection.ensure_connection()
    return connection.connection.info.backend_pid


@contextmanager
def session(name: str = "second session") -> Iterator[psycopg.Connection]:
    """Open a second session to the test database, beside Django; a transaction begins with its first statement."""
    params = {**connection.get_connection_params(), "application_name": name}
    params.pop("cursor_factory", None)
    with psycopg.connect(**params) as opened:
        try:
            yield opened
        finally:
            if not opened.closed:
                opened.rollback()


def wait_until_blocked(pid: int) -> None:
    """Return once the server says that this process waits for a lock that somebody holds."""

    def blocked() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", [pid])
            return bool(cursor.fetchone()[0])

    until(blocked, f"server process {pid} waits for a lock", within=PATIENCE)


class InThread:
    """Work on a thread with a Django connection of its own; `result()` joins it and raises what it raised."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._connected = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None
        self.pid = 0
        self._thread = threading.Thread(target=self._run, name="second thread")
        self._thread.start()
        assert self._connected.wait(PATIENCE.total_seconds())

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> Any:
        self._thread.join(PATIENCE.total_seconds() * 2)
        assert not self._thread.is_alive(), "the thread did not end"
        if self._error is not None:
            raise self._error
        return self._result

    def _run(self) -> None:
        try:
            self.pid = backend_pid()
            self._connected.set()
            self._result = self._work()
        except BaseException as error:
            self._error = error
        finally:
            self._connected.set()
            connection.close()


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """Run these at the same moment, each on a thread of its own, and return what they returned."""
    gate = threading.Barrier(len(works))

    def gated(work: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            gate.wait(PATIENCE.total_seconds())
            return work()

        return run

    threads = [InThread(gated(work)) for work in works]
    return [thread.result() for thread in threads]


def end_batch(endings: list[outcomes.Ending]) -> list[outcomes.Ended]:
    """End these as a worker's loop does: a row that somebody has locked is asked for again."""
    replies: list[outcomes.Ended] = []
    while endings:
        with transaction.atomic():
            accepted = outcomes.end(endings, using="default")
        settled = outcomes.settle(endings, accepted, using="default")
        replies += [reply for reply in settled if not reply.busy]
        endings = [reply.ending for reply in settled if reply.busy]
    return replies


def in_step(rounds: int, *works: Callable[[int], Any]) -> list[list[Any]]:
    """Run these against each other `rounds` times, each round begun at the same moment on one thread each."""
    gate = threading.Barrier(len(works))

    def stepping(work: Callable[[int], Any]) -> Callable[[], list[Any]]:
        def run() -> list[Any]:
            replies = []
            for number in range(rounds):
                gate.wait(PATIENCE.total_seconds())
                replies.append(work(number))
            return replies

        return run

    threads = [InThread(stepping(work)) for work in works]
    return [thread.result() for thread in threads]

"""What the tests of the job's own fence share: a context without a worker, a beating heart, and a bad line."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, connections

from django_pgqueue import outcomes, upkeep
from django_pgqueue.context import JobContext
from django_pgqueue.holding import Holding
from django_pgqueue.lab.proxy import Proxy, Trap
from django_pgqueue.lab.target import Target
from django_pgqueue.lease import Lease
from django_pgqueue.models import Job
from django_pgqueue.worker.services.heartbeat import Heartbeat
from tests.races.tools import PATIENCE, expire, reclaimed

BEAT_SECONDS = 0.05


def holding_of(lease: Lease, using: str = "default") -> Holding:
    return Holding(lease, sent_at=time.monotonic(), stopping=threading.Event(), using=using)


def context_of(lease: Lease, using: str = "default") -> JobContext:
    """Return what the job of this lease gets as its first argument."""
    return JobContext(task_result=None, holding=holding_of(lease, using))


def spend(lease: Lease) -> None:
    """Let the lease of a last attempt run out, and the job end of it."""
    Job.objects.filter(pk=lease.job_id).update(max_attempts=lease.attempt)
    expire(lease.job_id)
    upkeep.exhaust()


def confirm_cancel(lease: Lease) -> None:
    outcomes.cancel(lease.job_id)
    expire(lease.job_id)
    upkeep.exhaust()


# How a job moves on under its worker, and the verdict on whatever that worker then writes.
MOVES: dict[str, tuple[Callable[[Lease], object], str]] = {
    "reclaimed": (reclaimed, "superseded"),
    "reclaimed and done": (lambda lease: outcomes.complete(reclaimed(lease)), "superseded"),
    "released": (outcomes.release, "not_running"),
    "cancelled": (confirm_cancel, "not_running"),
    "spent": (spend, "not_running"),
    "deleted": (lambda lease: Job.objects.filter(pk=lease.job_id).delete(), "missing"),
}


@contextmanager
def beating(*holdings: Holding, beat_seconds: float = BEAT_SECONDS) -> Iterator[Heartbeat]:
    """Let a worker's real heartbeat renew these leases, on a thread of its own."""
    heart = Heartbeat(
        using="default",
        name="heartbeat of a test",
        beat_seconds=beat_seconds,
        holdings=lambda: list(holdings),
        row=lambda: {
            "id": "worker of a test",
            "host": "here",
            "pid": 1,
            "queues": ["*"],
            "concurrency": 1,
            "running": len(holdings),
            "draining": False,
        },
    )
    thread = threading.Thread(target=heart.run, name="heartbeat of a test")
    thread.start()
    try:
        yield heart
    finally:
        heart.stop()
        thread.join(PATIENCE.total_seconds())
        assert not thread.is_alive()


@contextmanager
def bad_line(*, at: str, marker: str = "UPDATE django_pgqueue_job") -> Iterator[Trap]:
    """Lead this thread's connection through a proxy that cuts it at the COMMIT of a transaction with `marker`.

    `at` "request": the server never sees the COMMIT; "reply": it has committed, and nobody is told.
    """
    connection.ensure_connection()
    parameters = {**connection.connection.info.get_parameters(), "dbname": connection.settings_dict["NAME"]}
    direct = connections["default"]
    with Proxy(Target(params=parameters)) as proxy:
        trap = proxy.set_trap(marker, at=at)
        cutter = threading.Thread(target=lambda: trap.caught.wait(60) and trap.drop(), daemon=True)
        cutter.start()
        through = connections["default"] = direct.copy()
        settings: dict[str, Any] = through.settings_dict
        options = {**settings["OPTIONS"], "sslmode": "disable", "gssencmode": "disable"}
        through.settings_dict = {**settings, "OPTIONS": options}
        through.settings_dict.update(HOST="127.0.0.1", PORT=proxy.target.params["port"])
        try:
            yield trap
        finally:
            connections["default"].close()
            connections["default"] = direct
            trap.caught.set()
            cutter.join()

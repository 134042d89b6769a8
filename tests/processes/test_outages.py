"""The database goes away, comes back, freezes, or only reads.

On a server of its own, which other tests do not notice.
"""

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from django_pgqueue.lab.servers import Server
from tests.processes.server import throwaway_server
from tests.processes.stage import Stage, Worker

OUTAGE_SECONDS = 5.0
ROLES = ("loop", "heartbeat", "upkeep", "listener")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with throwaway_server() as server:
        yield server


@pytest.fixture
def lonely(server: Server, tmp_path: Path) -> Iterator[Stage]:
    """Give a stage on the throw-away server, migrated and empty."""
    server.start()
    stage = Stage(server.url, tmp_path / "stage")
    stage.sql(
        "TRUNCATE django_pgqueue_job, django_pgqueue_failure, django_pgqueue_rejection, django_pgqueue_worker CASCADE"
    )
    try:
        yield stage
    finally:
        stage.close()
        server.thaw()


@pytest.mark.parametrize(
    ("immediately", "lasts"), [pytest.param(False, OUTAGE_SECONDS, marks=pytest.mark.slow), (True, 1.0)]
)
def test_an_outage_is_waited_out(lonely: Stage, server: Server, immediately: bool, lasts: float) -> None:
    """With jobs waiting, one running through it, and one that ends in the middle of it. Report 58."""
    worker = lonely.worker("--concurrency", "2", "--lease", "60")
    through, amid = lonely.enqueue("hold", "through"), lonely.enqueue("hold", "amid")
    waiting = [lonely.enqueue("noop") for _ in range(20)]
    for job in (through, amid):
        lonely.wait_note("started", job)

    server.stop(immediately)
    lonely.open("amid")
    lonely.wait_note("ended", amid)
    threading.Event().wait(lasts)
    assert worker.returncode is None
    server.start()
    back_at = time.monotonic()

    lonely.wait_state(amid, "done")
    took = time.monotonic() - back_at
    lonely.open("through")
    for job in (through, amid, *waiting):
        lonely.wait_state(job, "done")
        assert lonely.brief(job) == ("done", 1, 1)
    assert took < lasts + 2  # the pause grows with the outage, to five seconds
    assert lonely.count("django_pgqueue_rejection") == 0
    assert len(worker.output.splitlines()) < 20, worker.output
    assert "The database is back" in worker.output
    worker.stop()
    assert worker.wait() == 0


def test_a_lease_that_expired_during_the_outage_is_settled_by_the_row(lonely: Stage, server: Server) -> None:
    """Nobody took the jobs meanwhile: the only result is accepted, as FENCING="token" says. Report 58."""
    worker = lonely.worker("--lease", "0.5")
    job = lonely.enqueue("hold", "end")
    lonely.wait_note("started", job)
    server.stop(immediately=True)
    lonely.open("end")
    lonely.wait_note("ended", job)
    threading.Event().wait(0.6)
    server.start()

    lonely.wait_state(job, "done")
    assert lonely.brief(job) == ("done", 1, 1)
    assert worker.returncode is None


def test_a_stop_during_an_outage_ends_after_the_shutdown_timeout(lonely: Stage, server: Server) -> None:
    """Report 58."""
    worker = lonely.worker("--lease", "2", "--shutdown-timeout", "1")
    job = lonely.enqueue("hold", "never")
    lonely.wait_note("started", job)
    server.stop(immediately=True)
    worker.stop()
    since = time.monotonic()
    assert worker.wait() == 0
    assert time.monotonic() - since < 1 + 5

    server.start()
    assert lonely.brief(job) == ("running", 1, 1)  # left to its lease
    lonely.worker()
    lonely.wait_note("started", job, count=2)


def test_a_worker_started_before_the_server_says_so_and_waits_for_it(lonely: Stage, server: Server) -> None:
    """Report 59."""
    job = lonely.enqueue("noop")
    server.stop()
    worker = lonely.worker(wait=False)
    worker.wait_for(lambda: "The database does not answer" in worker.output)
    stopped = lonely.worker(wait=False)
    stopped.wait_for(lambda: "The database does not answer" in stopped.output)
    stopped.stop()
    assert stopped.wait(8) == 0
    server.start()

    lonely.wait_state(job, "done")
    for each in (worker, stopped):
        assert "Traceback" not in each.output
        assert len(each.output.splitlines()) <= 12, each.output


def test_a_worker_started_before_migrate_ends_with_one_clear_line(lonely: Stage, server: Server) -> None:
    """Report 59."""
    lonely.sql("DROP DATABASE IF EXISTS fresh")
    lonely.sql("CREATE DATABASE fresh")
    worker = lonely.worker(wait=False, env={"DATABASE_URL": server.url.replace("/shop?", "/fresh?")})
    assert worker.wait() == 1
    greeting, complaint = worker.output.splitlines()
    assert greeting.startswith("Worker ")
    missing = "CommandError: The queue's tables are missing in database 'default': run manage.py migrate"
    assert complaint.startswith(missing)


def freeze(stage: Stage, server: Server, worker: Worker, role: str) -> None:
    """Freeze the session in that role while it is idle, so that it holds nothing of the server's."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        (session,) = stage.sessions(worker, role)
        server.freeze(session["pid"])
        (now,) = stage.sessions(worker, role)
        if now["state"] == "idle":
            return
        server.thaw()
    raise AssertionError(f"the session of the {role} is never idle")


@pytest.mark.parametrize(
    "role",
    [
        pytest.param(role, marks=pytest.mark.slow) if role in ("heartbeat", "upkeep") else role
        for role in ROLES
    ],
)
def test_a_frozen_session_is_cut_and_replaced(lonely: Stage, server: Server, role: str) -> None:
    """Report 60."""
    worker = lonely.worker("--lease", "6", "--queue-name", "default", faults="impatient")
    held = lonely.enqueue("hold", "end")
    lonely.wait_note("started", held)
    lonely.wait(lambda: len(lonely.sessions(worker, role)) == 1, "the session is there")
    freeze(lonely, server, worker, role)
    before = lonely.job(held)["lease_until"]

    later = lonely.enqueue("noop", state="scheduled" if role == "upkeep" else "ready")
    lonely.wait_state(later, "done", seconds=15)
    lonely.wait(lambda: lonely.job(held)["lease_until"] > before, "the lease is renewed", seconds=10)
    lonely.open("end")
    lonely.wait_state(held, "done")
    assert lonely.brief(held) == ("done", 1, 1)

    worker.stop()
    since = time.monotonic()
    assert worker.wait() == 0
    assert time.monotonic() - since < 10


def test_a_worker_whose_sessions_are_all_frozen_can_be_ended(lonely: Stage, server: Server) -> None:
    """By one signal within the time after which a statement counts as stuck, and by two at once.

    Report 60.
    """
    patient = lonely.worker(wait=False, faults="")
    impatient = lonely.worker("--shutdown-timeout", "1", faults="impatient", wait=False)
    lonely.wait_working(patient, impatient)
    for worker in (patient, impatient):
        for role in ROLES:
            lonely.wait(
                lambda worker=worker, role=role: len(lonely.sessions(worker, role)) == 1, "all are there"
            )
            freeze(lonely, server, worker, role)

    impatient.stop()
    patient.stop()
    patient.wait_for(lambda: "Stopping" in patient.output)
    patient.send(signal.SIGTERM)
    assert patient.wait(2) == 128 + signal.SIGTERM
    since = time.monotonic()
    assert impatient.wait(20) == 0
    assert time.monotonic() - since < 15


def test_a_lost_listener_comes_back(lonely: Stage) -> None:
    """A hint is a hint: with a long interval, jobs start fast again after the listener's session was ended.

    Report 61.
    """
    worker = lonely.worker("--interval", "30")
    lonely.wait(lambda: len(lonely.sessions(worker, "listener")) == 1, "it listens")
    for _ in range(2):
        job = lonely.enqueue("noop")
        lonely.sql("NOTIFY django_pgqueue_ready")
        lonely.wait_state(job, "done", seconds=5)
        lonely.terminate(worker, "listener")
        lonely.wait(lambda: len(lonely.sessions(worker, "listener")) == 1, "it listens again")


def test_a_server_that_only_reads_is_waited_out_too(lonely: Stage) -> None:
    """Report 66."""
    worker = lonely.worker("--lease", "30")
    job = lonely.enqueue("hold", "end")
    lonely.wait_note("started", job)
    try:
        lonely.sql("ALTER SYSTEM SET default_transaction_read_only = on")
        lonely.sql("SELECT pg_reload_conf()")
        worker.wait_for(lambda: "read-only" in worker.output, what="it says so")
        lonely.open("end")
        lonely.wait_note("ended", job)
        lonely.stays(lambda: lonely.job(job)["state"] == "running", 1.5, "nothing can be written")
    finally:
        with lonely.connect() as session:
            session.execute("SET default_transaction_read_only = off")
            session.execute("ALTER SYSTEM RESET default_transaction_read_only")
            session.execute("SELECT pg_reload_conf()")
    lonely.wait_state(job, "done")
    assert lonely.brief(job) == ("done", 1, 1)
    lonely.wait_state(lonely.enqueue("noop"), "done")
    assert len(worker.output.splitlines()) < 20, worker.output
    assert worker.returncode is None

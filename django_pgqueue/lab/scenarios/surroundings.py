"""What stands around a worker: a clock that is wrong, and a pooler in transaction mode."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psycopg

from .. import invariants
from ..scenario import Scenarios
from ..stage import LEASE_SECONDS, Stage
from ..target import Target

scenarios = Scenarios("surroundings")

OFF = "10m"


@scenarios.add(
    "clocks", f"Workers whose clocks are {OFF} ahead and behind: only the database's clock judges a lease"
)
def clocks(stage: Stage) -> None:
    faketime = stage.need("faketime")
    stage.enqueue("outside", 2, gate="long")
    stage.enqueue("plain", 10)
    stage.worker("A", concurrency=4, env=_clock(faketime, f"+{OFF}"))
    stage.worker("B", concurrency=4, env=_clock(faketime, f"-{OFF}"))
    stage.record.event(f"worker-A's clock is {OFF} ahead, worker-B's {OFF} behind")
    for job_id in (1, 2):
        stage.until_reached(job_id)
    stage.until_row(
        "the long jobs have outlasted their first lease twice",
        "SELECT clock_timestamp() > max(started_at) + %s * interval '1 second' FROM django_pgqueue_job WHERE id <= 2",
        3 * LEASE_SECONDS,
    )
    stage.check_value("nothing was reclaimed", "SELECT max(generation) FROM django_pgqueue_job", 1)
    stage.check_value("no write was refused", "SELECT count(*) FROM django_pgqueue_rejection", 0)
    (orphan,) = stage.enqueue("outside", gate="orphan")
    stage.until_reached(orphan)
    stage.record.figure("the wrong clock of", _owner(stage, orphan))
    for process in stage.processes:
        if _owner(stage, orphan) == process.name:
            process.kill()
        else:
            stage.record.names[process.name] = "the other worker"
    stage.record.event("SIGKILL to the worker that runs one more job; the other takes over")
    stage.open_gate("orphan")
    stage.open_gate("long")
    stage.until_all_ended()
    stage.check_value(
        "the orphan was reclaimed once, when its lease had expired",
        f"SELECT generation FROM django_pgqueue_job WHERE id = {orphan}",
        2,
    )
    early = stage.facts.value(
        "SELECT count(*) FROM django_pgqueue_failure WHERE kind = 'lease_expired' AND at < substring(message from "
        "'expired at (.+?);')::timestamptz"
    )
    stage.check("no lease was taken before its end, by the database's clock", early == 0, early)
    stage.stop_workers()
    invariants.check(stage)


@scenarios.add("pgbouncer", "Workers behind pgbouncer in transaction mode: jobs, a SIGKILL, and nothing lost")
def pgbouncer(stage: Stage) -> None:
    pooled = _start_pgbouncer(stage, stage.need("pgbouncer"))
    for task in ("plain", "fenced", "transactional"):
        stage.enqueue(task, 40, seconds=0.02)
    doomed = stage.worker("A", via=pooled, concurrency=4, listen=False)
    stage.until_row(
        "some jobs are done", "SELECT count(*) >= 10 FROM django_pgqueue_job WHERE state = 'done'"
    )
    doomed.kill()
    stage.record.event("SIGKILL to worker-A")
    stage.worker("B", via=pooled, concurrency=4, listen=False)
    stage.until_all_ended(within=timedelta(minutes=1))
    stage.stop_workers()
    stage.check_value(
        "every job is done", "SELECT count(*) FROM django_pgqueue_job WHERE state = 'done'", 120
    )
    invariants.check(stage)


def _clock(faketime: str, offset: str) -> dict[str, str]:
    """Return what makes a process see another wall clock, as faketime itself would set it; not its monotonic clock."""
    shown = subprocess.run(
        [faketime, "-m", "-f", offset, "env"], capture_output=True, text=True, check=True
    ).stdout
    pairs = (line.partition("=") for line in shown.splitlines())
    env = {name: value for name, _, value in pairs if name in ("LD_PRELOAD", "FAKETIME")}
    return {**env, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}


def _owner(stage: Stage, job_id: int) -> str:
    worker = str(stage.facts.value("SELECT worker_ids[1] FROM django_pgqueue_job WHERE id = %s", job_id))
    return worker.rpartition("-")[0]


def _start_pgbouncer(stage: Stage, program: str) -> Target:
    """Start a pgbouncer of its own before the disposable database; return the way through it."""
    port = _free_port()
    passed_on = ("host", "port", "user", "password")
    server = " ".join(f"{key}='{value}'" for key, value in stage.target.params.items() if key in passed_on)
    settings = stage.folder / "pgbouncer.ini"
    settings.touch(mode=0o600)
    settings.write_text(
        f"[databases]\n* = {server}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        "pool_mode = transaction\ndefault_pool_size = 4\nserver_fast_close = 1\n"
    )
    user = None
    if os.geteuid() == 0:  # pgbouncer refuses root
        user = _who_reaches(stage.target)
        for path in (stage.place.folder, stage.folder):
            path.chmod(0o711)
        os.chown(settings, pwd.getpwnam(user).pw_uid, -1)
    process = stage.process("pgbouncer", [program, str(settings)], env=dict(os.environ), user=user)
    stage.record.event("pgbouncer started: pool_mode = transaction, 4 server connections")
    changes = {"host": "127.0.0.1", "port": str(port), "sslmode": "disable"}
    target = stage.target.without("hostaddr").but(**changes)
    stage.until("pgbouncer lets the lab in", lambda: _answers(target) or process.returncode is not None)
    return target


def _answers(target: Target) -> bool:
    with suppress(psycopg.OperationalError):
        target.connect().close()
        return True
    return False


def _who_reaches(target: Target) -> str:
    """Return a user other than root that may open the server's socket: its owner."""
    host = target.params["host"]
    if host.startswith("/") and (owner := Path(host, f".s.PGSQL.{target.params['port']}").stat().st_uid):
        return pwd.getpwuid(owner).pw_name
    return "nobody"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])

"""Tasks that the workers under test run. Each does one thing to the worker that runs it."""

import asyncio
import contextvars
import decimal
import os
import signal
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, connection, connections, transaction
from django.utils import timezone, translation

from django_pgqueue import Backoff, JobContext, task

from .notes import note, wait_for_gate

SOON = Backoff(base=timedelta(milliseconds=50), cap=timedelta(milliseconds=100))


@task()
def noop() -> None:
    """Do nothing."""


@task(takes_context=True)
def mark(context: JobContext, text: str = "") -> int:
    """Note that the job ran."""
    note("ran", job=context.job_id, generation=context.generation, text=text)
    return context.generation


@task(takes_context=True)
def hold(context: JobContext, gate: str) -> int:
    """Run until the gate opens, in every generation."""
    note("started", job=context.job_id, generation=context.generation, attempt=context.attempt)
    wait_for_gate(gate)
    note("ended", job=context.job_id, generation=context.generation, lease_lost=context.lease_lost)
    return context.generation


@task(takes_context=True)
def hold_first(context: JobContext, gate: str) -> int:
    """Run until the gate opens in the first generation only."""
    note("started", job=context.job_id, generation=context.generation, attempt=context.attempt)
    if context.generation == 1:
        wait_for_gate(gate)
    note("ended", job=context.job_id, generation=context.generation, lease_lost=context.lease_lost)
    return context.generation


@task(takes_context=True)
async def ahold(context: JobContext, gate: str) -> None:
    """Run until the gate opens, without ever blocking the event loop."""
    note("started", job=context.job_id, generation=context.generation)
    while True:
        await asyncio.sleep(0.02)
        try:
            wait_for_gate(gate, seconds=0)
            return
        except TimeoutError:
            continue


@task(takes_context=True)
def spin(context: JobContext, seconds: float) -> None:
    """Keep the interpreter busy with pure Python."""
    note("started", job=context.job_id, generation=context.generation)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        sum(number * number for number in range(100))


@task(takes_context=True)
def nap(context: JobContext, seconds: float) -> None:
    """Sleep."""
    note("started", job=context.job_id, generation=context.generation)
    threading.Event().wait(seconds)


@task(takes_context=True)
async def block_the_loop(context: JobContext, seconds: float) -> None:
    """Sleep in an async task without awaiting."""
    note("started", job=context.job_id, generation=context.generation)
    threading.Event().wait(seconds)


@task(takes_context=True)
def kill_own_process(context: JobContext) -> None:
    """Take the worker down, as the out-of-memory killer would."""
    note("started", job=context.job_id, generation=context.generation)
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait(10)


@task(takes_context=True)
def tidy_up_when_stopping(context: JobContext) -> str:
    """End early once the worker is shutting down."""
    note("started", job=context.job_id, generation=context.generation)
    deadline = time.monotonic() + 30
    while not context.should_stop and time.monotonic() < deadline:
        threading.Event().wait(0.02)
    return "tidied up"


@task()
def enqueue_more(depth: int) -> None:
    """Enqueue a job that enqueues a job …"""
    if depth > 0:
        enqueue_more.using(queue_name="chain").enqueue(depth - 1)


@task(takes_context=True)
def audit(context: JobContext) -> None:
    """Write one row; a second start of the same generation breaks the table's key."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO process_audit (job_id, generation, pid) VALUES (%s, %s, %s)",
            [context.job_id, context.generation, os.getpid()],
        )


# Connections


def backend_pid(alias: str = "default") -> int:
    """Return the process of the thread's session."""
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


@task(takes_context=True, retry=SOON)
def ask(context: JobContext, gate: str = "") -> int:
    """Use the connection; with a gate, again after it has opened."""
    pid = backend_pid()
    if gate:
        note("asked", job=context.job_id, generation=context.generation)
        wait_for_gate(gate)
        pid = backend_pid()
    return pid


@task()
def touch_two_databases() -> list[int]:
    """Use both aliases."""
    return [backend_pid("default"), backend_pid("other")]


@task()
def keep_connection_busy() -> None:
    """Hold a pooled connection for a moment."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.02)")


@task(takes_context=True)
def write_slowly(context: JobContext, gate: str) -> None:
    """Keep a transaction on the default alias open while the queue's alias is busy, then commit."""
    with transaction.atomic(using="default"), connections["default"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO process_audit (job_id, generation, pid) VALUES (%s, 1, %s)",
            [context.job_id, os.getpid()],
        )
        note("written", job=context.job_id)
        wait_for_gate(gate)


# Damage


class Deliberate(Exception):
    """Raised on purpose."""


@task(retry=SOON)
def damage(how: str) -> str:
    """Leave the thread's connection in some unusual state."""
    cursor = connection.cursor()
    cursor.execute("SELECT 1")
    match how:
        case "commits by itself":
            for _ in range(3):
                with transaction.atomic():
                    backend_pid()
            connection.set_autocommit(False)
            backend_pid()
            connection.commit()
            connection.set_autocommit(True)
        case "closes its connection":
            connection.close()
        case "closes the raw connection":
            connection.connection.close()
        case "leaves atomic open":
            transaction.atomic().__enter__()
            backend_pid()
        case "leaves two atomic blocks open":
            transaction.atomic().__enter__()
            transaction.atomic().__enter__()
            backend_pid()
        case "turns autocommit off":
            connection.set_autocommit(False)
            backend_pid()
        case "turns autocommit off, then fails":
            connection.set_autocommit(False)
            backend_pid()
            raise Deliberate
        case "swallows an error in atomic":
            with transaction.atomic(), suppress(DatabaseError):
                cursor.execute("SELECT 1/0")
            return "never committed"
        case "leaves an aborted transaction":
            connection.set_autocommit(False)
            with suppress(DatabaseError):
                cursor.execute("SELECT 1/0")
        case "begins by hand":
            cursor.execute("BEGIN")
            cursor.execute("SELECT 1")
        case "leaves a callback for a commit that never comes":
            transaction.atomic().__enter__()
            transaction.on_commit(lambda: note("callback"))
        case "fails inside atomic":
            with transaction.atomic():
                raise Deliberate
        case "replaces its connection":
            del connections["default"]
            connections["default"] = connections.create_connection("default")
            backend_pid()
        case "is ended by the server":
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    return "survived"


@task(takes_context=True)
def check_health(context: JobContext) -> str:
    """Show that the thread's connection is as good as new."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMP TABLE probe (x int) ON COMMIT DROP")  # gone at once: autocommit is on
        cursor.execute("SELECT to_regclass('pg_temp.probe')")
        gone = cursor.fetchone()[0] is None
        with transaction.atomic():
            cursor.execute("SELECT pg_current_xact_id_if_assigned() IS NULL")
    return "healthy" if gone and connection.get_autocommit() else "damaged"


# Endings


class Bare(BaseException):
    """No Exception."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


@task()
def leave_with(how: str) -> Any:
    """End in an unusual way."""
    match how:
        case "exit":
            raise SystemExit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "generator exit":
            raise GeneratorExit
        case "bare":
            raise Bare("bare")
        case "stop iteration":
            raise StopIteration(1)
        case "nul":
            raise ValueError("a\x00b")
        case "nul in a key":
            return {"deep": [{"k\x00": 1}]}
        case "infinite":
            return {"x": float("inf")}
        case "surrogate":
            raise ValueError("\ud800")
        case "unprintable":
            raise Unprintable
        case "unserialisable":
            return object()
        case "group":
            error: Exception = ValueError("innermost")
            for _ in range(50):
                error = ExceptionGroup("nested", [error])
            raise error
        case "long":
            raise ValueError("x" * 50_000_000)
        case "recursion":
            return leave_with.func(how)


@task()
async def aleave_with(how: str) -> None:
    """End an async task in an unusual way."""
    match how:
        case "cancelled":
            raise asyncio.CancelledError
        case "exit":
            raise SystemExit(4)
        case "interrupt":
            raise KeyboardInterrupt
        case "cancels itself":
            current = asyncio.current_task()
            assert current
            current.cancel()
            await asyncio.sleep(1)


@task()
def one_argument(only: int) -> int:
    """Take exactly one argument."""
    return only


def no_task() -> None:
    """Be no task."""


# Leftovers

TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")


def _traces() -> dict[str, str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('search_path'), current_user, current_setting('my.tenant', true)"
        )
        path, role, custom = cursor.fetchone()
    return {
        "language": translation.get_language(),
        "time zone": timezone.get_current_timezone_name(),
        "context variable": TENANT.get(),
        "precision": str(decimal.getcontext().prec),
        "search path": path,
        "role": role,
        "custom setting": custom or "",
    }


def _leave(how: str) -> None:
    translation.activate("de")
    timezone.activate("Asia/Tokyo")
    TENANT.set("acme")
    decimal.getcontext().prec = 7
    with connection.cursor() as cursor:
        match how:
            case "set":
                cursor.execute("SET search_path TO pg_catalog")
                cursor.execute("SET ROLE pg_monitor")
                cursor.execute("SET my.tenant = 'acme'")
            case "set_config":
                cursor.execute("SELECT set_config('search_path', 'pg_catalog', false)")
                cursor.execute(
                    "SELECT set_config('role', 'pg_monitor', false), set_config('my.tenant', 'acme', false)"
                )
            case "commented":
                cursor.execute("-- the tenant\n  SET search_path TO pg_catalog")
                cursor.execute("/* the tenant */ SET ROLE pg_monitor")
                cursor.execute("SELECT 1; SET my.tenant = 'acme'")


@task()
def report_traces() -> dict[str, str]:
    """Return what a job can see of its surroundings."""
    return _traces()


@task()
def leave_traces(how: str) -> dict[str, str]:
    """Change the surroundings and leave them so."""
    _leave(how)
    return {}


@task()
async def aleave_traces(how: str) -> dict[str, str]:
    """Do the same in an async task."""
    from asgiref.sync import sync_to_async

    await sync_to_async(_leave)(how)
    TENANT.set("acme")
    return {}


@task(takes_context=True)
def commit_and_close(context: JobContext, gate: str) -> None:
    """Commit several transactions, close the connection, and run on."""
    for _ in range(3):
        with transaction.atomic():
            backend_pid()
        connection.close()
    note("committed", job=context.job_id)
    wait_for_gate(gate)


@task()
async def atouch_two_databases() -> list[int]:
    """Use both aliases from an async task."""
    from asgiref.sync import sync_to_async

    return [await sync_to_async(backend_pid)(alias) for alias in ("default", "other")]

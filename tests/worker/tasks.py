"""Tasks that the workers of these tests run, in threads, child processes and coroutines."""

import asyncio
import ctypes
import os
import signal
import threading
import time
from datetime import timedelta
from typing import Any

from django.db import connection

from django_pgqueue import Backoff, JobContext, task
from django_pgqueue.exceptions import Snooze
from tests.processes.notes import note, wait_for_gate

AT_ONCE = Backoff(base=timedelta(0), cap=timedelta(0))
SHORT = timedelta(seconds=0.5)


class Deliberate(Exception):
    """Raised on purpose."""


class Bare(BaseException):
    """No Exception."""


def started(context: JobContext, **facts: Any) -> None:
    note("started", job=context.job_id, generation=context.generation, attempt=context.attempt, **facts)


def insert(context: JobContext, text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pool_effect (job_id, generation, text) VALUES (%s, %s, %s)",
            [context.job_id, context.generation, text],
        )


@task(takes_context=True)
def add(context: JobContext, one: int, two: int) -> dict[str, int]:
    return {"sum": one + two, "pid": os.getpid()}


@task(retry=AT_ONCE)
def fail() -> None:
    raise Deliberate("always")


@task(takes_context=True, retry=AT_ONCE)
def fail_first(context: JobContext) -> int:
    if context.attempt == 1:
        raise Deliberate("the first time")
    return context.attempt


@task(takes_context=True)
def snooze_first(context: JobContext) -> int:
    if context.generation == 1:
        raise Snooze(timedelta(0))
    return context.attempt


@task(max_attempts=1)
def leave_with(how: str) -> object:
    match how:
        case "SystemExit":
            raise SystemExit(3)
        case "KeyboardInterrupt":
            raise KeyboardInterrupt
        case "Bare":
            raise Bare("bare")
        case "CancelledError":
            raise asyncio.CancelledError
    return object()


@task(takes_context=True)
def hold(context: JobContext, gate: str) -> int:
    started(context)
    wait_for_gate(gate)
    return os.getpid()


@task(takes_context=True)
def hold_and_fail(context: JobContext, gate: str) -> None:
    started(context)
    wait_for_gate(gate)
    raise Deliberate("after the gate")


@task(takes_context=True)
def check_until_told(context: JobContext) -> None:
    started(context)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        context.check()
        threading.Event().wait(0.02)


@task(takes_context=True, timeout=SHORT, max_attempts=1)
def spin_too_long(context: JobContext) -> None:
    started(context)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        sum(number for number in range(50))


@task(timeout=timedelta(seconds=0.1), max_attempts=1)
def spin_in_vain() -> None:
    while True:
        threading.Event().wait(0.0001)  # in and out of locks


@task(takes_context=True, timeout=SHORT, max_attempts=1)
def sleep_too_long(context: JobContext) -> None:
    """Sleep in one call, which a thread cannot be woken from; then try to write under the lost lease."""
    started(context)
    try:
        time.sleep(2.0)
    finally:
        try:
            with context.complete("too late"):
                insert(context, "too late")
        except BaseException as error:
            note("late", job=context.job_id, error=type(error).__name__)
            raise


@task(takes_context=True, max_attempts=1)
def complete_and_fail(context: JobContext) -> None:
    with context.complete("by itself"):
        insert(context, "once")
    raise Deliberate("after the end")


@task(takes_context=True, max_attempts=1)
def fence_and_fail(context: JobContext) -> None:
    with context.fence():
        insert(context, "kept")
    with context.fence():
        insert(context, "rolled back")
        raise Deliberate("inside the block")


@task(takes_context=True, transactional=True, retry=AT_ONCE)
def write_and_fail_first(context: JobContext) -> None:
    insert(context, f"attempt {context.attempt}")
    if context.attempt == 1:
        raise Deliberate("half way")


@task(takes_context=True, retry=AT_ONCE)
def send_once(context: JobContext) -> Any:
    def send() -> str:
        note("sent", job=context.job_id, generation=context.generation)
        return f"by generation {context.generation}"

    answer = context.once("mail", send)
    if context.attempt == 1:
        raise Deliberate("after the mail")
    return answer


@task(takes_context=True)
def naps(context: JobContext, seconds: float) -> None:
    started(context)
    threading.Event().wait(seconds)


# Only for child processes


@task(takes_context=True, retry=AT_ONCE)
def die_first(context: JobContext, how: str) -> int:
    """End the process in the first attempt."""
    started(context)
    if context.attempt > 1:
        return os.getpid()
    wait_for_gate(how)
    match how:
        case "exit":
            os._exit(7)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGSEGV)
        case "terminate":
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(20)
    return 0


@task(takes_context=True, max_attempts=1)
def leave_a_process(context: JobContext, gate: str, dies: bool) -> None:
    """Leave a process that has everything this one had open, until the gate opens; then return, or die."""
    left = os.fork()
    if left == 0:
        try:
            wait_for_gate(gate)
        finally:
            os._exit(0)
    started(context, left=left)
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)


@task(takes_context=True)
def fork_and_go_on(context: JobContext, how: str) -> int:
    """Let a copy of the process return from the task, or leave it by an exception, as this one returns."""
    insert(context, "before the fork")
    pid = os.getpid()
    left = os.fork()
    if left == 0 and how == "raises":
        raise SystemExit(0)
    if left != 0:
        started(context, left=left)
    return pid if left != 0 else -1


@task(takes_context=True)
def complete_and_die(context: JobContext) -> None:
    with context.complete("by itself"):
        insert(context, f"generation {context.generation}")
    started(context)
    os.kill(os.getpid(), signal.SIGKILL)


@task()
def length(text: str) -> int:
    return len(text)


@task(takes_context=True)
def hold_the_interpreter(context: JobContext, seconds: float) -> str:
    """Stay in one C call that does not release the GIL."""
    started(context)
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    return "kept"


# Async


@task(takes_context=True)
async def anap(context: JobContext, seconds: float) -> list[int]:
    begun = time.monotonic()
    await asyncio.sleep(seconds)
    note("slept", job=context.job_id, begun=begun, ended=time.monotonic())
    return [threading.get_ident(), id(asyncio.get_running_loop())]


@task(takes_context=True)
async def block_the_loop(context: JobContext, seconds: float) -> bool:
    started(context)
    time.sleep(seconds)
    return context.lease_lost


@task(takes_context=True, max_attempts=1)
async def meet_inside_a_fence(context: JobContext, mine: str, other: str, fails: bool) -> None:
    """Write inside a fence, and leave it only once the other job is inside its own."""
    async with context.fence():
        from asgiref.sync import sync_to_async

        await sync_to_async(insert)(context, mine)
        note(f"inside {mine}")
        while not await sync_to_async(_is_inside)(other):
            await asyncio.sleep(0.02)
        if fails:
            raise Deliberate("inside the block")


def _is_inside(other: str) -> bool:
    try:
        wait_for_gate(other, seconds=0)
    except TimeoutError:
        return False
    return True


@task(takes_context=True, timeout=SHORT, max_attempts=1)
async def anap_too_long(context: JobContext) -> None:
    started(context)
    await asyncio.sleep(30)


@task(max_attempts=1)
async def aleave_with(how: str) -> object:
    return leave_with.func(how)

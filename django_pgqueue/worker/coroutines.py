"""Async tasks: all those of a process run on one event loop, each in a context of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import partial

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async

from ..connections import close_all
from ..context import Holding
from ..log import logger
from ..outcomes import Ending

LAST_STEPS_SECONDS = 0.1

Done = Callable[[Ending | None], object]


class Coroutines:
    """An event loop on a thread of its own, started with the first async job.

    Code that blocks in a coroutine holds up the other coroutines of this process, but neither its threads
    nor the heartbeat.
    """

    def __init__(self, *, run: Callable[[Holding], Awaitable[Ending | None]]) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: dict[tuple[int, int], asyncio.Task[None]] = {}

    def take(self, holding: Holding, done: Done) -> None:
        """Run the job, whose task is a coroutine function, and call `done` at its end."""
        self._started().call_soon_threadsafe(partial(self._begin, holding, done))

    def cancel(self, holding: Holding) -> bool:
        """Cancel the coroutine of a job that has run for too long; False if it has none."""
        task = self._tasks.get(holding.lease.key)
        if task is None or self._loop is None:
            return False
        self._loop.call_soon_threadsafe(task.cancel)
        return True

    def stop(self, timeout: float) -> None:
        """End the event loop, and wait up to `timeout` seconds for its thread."""
        with self._lock:
            if self._loop is None or self._thread is None:
                return
            self._loop.call_soon_threadsafe(self._wind_up, self._loop)
        self._thread.join(timeout)
        if not self._thread.is_alive():  # else a coroutine holds it up, and it ends with the process
            self._loop.close()

    def _wind_up(self, loop: asyncio.AbstractEventLoop) -> None:
        for task in list(self._tasks.values()):  # their leases were given back
            task.cancel()
        loop.call_later(LAST_STEPS_SECONDS if self._tasks else 0, loop.stop)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run, args=(self._loop,), name="pgqueue-coroutines", daemon=True
                )
                self._thread.start()
            return self._loop

    def _begin(self, holding: Holding, done: Done) -> None:
        assert self._loop is not None  # this runs on it
        task = self._loop.create_task(self._serve(holding, done), context=Context())
        self._tasks[holding.lease.key] = task

    async def _serve(self, holding: Holding, done: Done) -> None:
        """Run one job; its synchronous parts, and so its connections, have a thread to themselves."""
        ending: Ending | None = None
        try:
            async with ThreadSensitiveContext() as context:
                ending = await self._run(holding)
                if context in SyncToAsync.context_to_thread_executor:  # there is a thread, with connections
                    await sync_to_async(close_all, thread_sensitive=True)()
        finally:
            self._tasks.pop(holding.lease.key, None)
            done(ending)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run the event loop until it is stopped: a SystemExit in a task that a job created does not end it."""
    while True:
        try:
            loop.run_forever()
            return
        except BaseException as error:
            logger.warning("A coroutine raised %s on the event loop, which goes on", type(error).__name__)

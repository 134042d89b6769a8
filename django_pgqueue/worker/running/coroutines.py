"""Async tasks: all those of a process run on one event loop, each in a context of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextvars import Context

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async

from ...connections import close_all
from ...holding import Holding
from ...log import logger
from ...outcomes import Ending
from .execution import Execution

LAST_STEPS_SECONDS = 0.1


class Coroutines:
    """An event loop on a thread of its own, started with the first async job; each job's end goes to `over`.

    Code that blocks in a coroutine holds up the other coroutines of this process, but neither its threads
    nor the heartbeat.
    """

    def __init__(self, execution: Execution, *, over: Callable[[Holding, Ending | None], object]) -> None:
        self._execution = execution
        self._over = over
        self._lock = threading.Lock()  # of what stands below
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        # Those that have a slot; None: not yet begun.
        self._tasks: dict[Holding, asyncio.Task[None] | None] = {}
        self._given_up: dict[Holding, asyncio.Task[None]] = {}
        self.ran = 0
        self.seconds = 0.0

    def __len__(self) -> int:
        """Return how many have a slot."""
        return len(self._tasks)

    @property
    def stuck(self) -> int:
        """How many were given up and have not ended."""
        return len(self._given_up)

    def add(self, holding: Holding) -> None:
        """Give the job, whose task is a coroutine function, a slot."""
        with self._lock:
            self._tasks[holding] = None

    def start(self, holding: Holding) -> None:
        """Run it. Its seconds count from now on: behind a coroutine that blocks it waits in its slot."""
        self._started().call_soon_threadsafe(self._begin, holding, time.monotonic())

    def give_up(self, holding: Holding) -> bool:
        """Cancel the coroutine of a job that has run for too long; it may ignore that, so its slot does not wait.

        False if it is over by now.
        """
        with self._lock:
            holding.fate.abandoned = True
            task = self._tasks.get(holding)
            if task is None or self._loop is None:
                return False
            del self._tasks[holding]
            self._given_up[holding] = task
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
        tasks = [task for task in (*self._tasks.values(), *self._given_up.values()) if task is not None]
        for task in tasks:  # their leases were given back
            task.cancel()
        loop.call_later(LAST_STEPS_SECONDS if tasks else 0, loop.stop)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run, args=(self._loop,), name="pgqueue-coroutines", daemon=True
                )
                self._thread.start()
            return self._loop

    def _begin(self, holding: Holding, began: float) -> None:
        assert self._loop is not None  # this runs on it
        task = self._loop.create_task(self._serve(holding, began), context=Context())
        with self._lock:
            self._tasks[holding] = task

    async def _serve(self, holding: Holding, began: float) -> None:
        """Run one job; its synchronous parts, and so its connections, have a thread to themselves."""
        ending: Ending | None = None
        try:
            async with ThreadSensitiveContext() as context:
                ending = await self._execution.arun(holding)
                if context in SyncToAsync.context_to_thread_executor:  # there is a thread, with connections
                    await sync_to_async(close_all, thread_sensitive=True)()
        finally:
            self._end(holding, ending, time.monotonic() - began)

    def _end(self, holding: Holding, ending: Ending | None, seconds: float) -> None:
        with self._lock:
            if self._given_up.pop(holding, None) is not None:
                return
            self._tasks.pop(holding, None)
            self.ran += 1
            self.seconds += seconds
        self._over(holding, ending)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run the event loop until it is stopped: a SystemExit in a task that a job created does not end it."""
    while True:
        try:
            loop.run_forever()
            return
        except BaseException as error:
            logger.warning("A coroutine raised %s on the event loop, which goes on", type(error).__name__)

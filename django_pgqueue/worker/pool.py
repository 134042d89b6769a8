"""The threads that run jobs."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from ..context import Holding
from ..exceptions import JobTimeout
from ..outcomes import Ending


class Pool(Protocol):
    """What the loop asks of a pool."""

    @property
    def free(self) -> int:
        """How many more jobs there is a slot for."""
        ...

    def submit(self, holdings: Sequence[Holding]) -> None:
        """Run these jobs."""
        ...

    def take_unstarted(self) -> list[Holding]:
        """Return the jobs that have not begun."""
        ...

    def take_measure(self) -> tuple[int, float]:
        """Return how many jobs have ended since the last call, and for how many seconds they ran."""
        ...

    def longest_wait(self) -> float:
        """Return for how many seconds the first waiting job has waited."""
        ...

    def abandon(self, holding: Holding) -> None:
        """Give up on a job that has run for too long."""
        ...


class ThreadPool:
    """`size` daemon threads; `free` counts the slots a claim may fill.

    Each job is handed to `run`, its ending to `ended`; `room` makes what a thread needs around its jobs.
    """

    def __init__(
        self,
        size: int,
        *,
        run: Callable[[Holding], Ending | None],
        ended: Callable[[Holding, Ending | None], object],
        room: Callable[[int], Room],
        hand_over: Callable[[Holding, Callable[[Ending | None], object]], bool],
        cancel: Callable[[Holding], bool],
    ) -> None:
        self._pid = os.getpid()
        self._size = size
        self._run = run
        self._ended = ended
        self._room = room
        self._hand_over = hand_over
        self._cancel = cancel
        # Job threads take the lock itself: `with` a Condition runs Python code, in which a JobTimeout from
        # `abandon` could come between the taking of the lock and the block that gives it back.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._written_off: set[Holding] = set()
        self._waiting: deque[Holding] = deque()
        self._busy = 0
        self._ran = 0
        self._seconds = 0.0
        self._stopping = False
        self._stuck = 0
        self._threads = [self._thread(number) for number in range(size)]
        self._made = size - 1

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    @property
    def free(self) -> int:
        """How many more jobs there is a slot for; negative while jobs wait for one."""
        return self._size - self._busy - len(self._waiting)

    def take_measure(self) -> tuple[int, float]:
        """Return how many jobs have ended since the last call, and for how many seconds they ran in all."""
        with self._changed:
            measure = self._ran, self._seconds
            self._ran, self._seconds = 0, 0.0
            return measure

    def longest_wait(self) -> float:
        """Return for how many seconds the first waiting job has waited for a slot."""
        with self._changed:
            return time.monotonic() - self._waiting[0].held_since if self._waiting else 0.0

    @property
    def is_busy(self) -> bool:
        """Whether a thread is in a job, abandoned or not."""
        return self._busy + self._stuck > 0

    def abandon(self, holding: Holding) -> None:
        """Give up on a job that has run for too long, and put a new thread in the place of the one it holds.

        JobTimeout is raised in the old thread, which ends it at its next step in Python; one that never
        comes back from a call stays as it is, and can no longer write anything fenced.
        """
        with self._changed:
            if holding.abandoned:
                return
            holding.abandoned = True
            if holding.thread_id is None:  # a coroutine, or over by now
                if self._cancel(holding):  # which it may ignore, so its slot does not wait for it
                    self._written_off.add(holding)
                    self._busy -= 1
                    self._stuck += 1
                    self._changed.notify()
                return
            self._busy -= 1
            self._stuck += 1
            # Under the lock, so that it reaches a thread that is still in this job.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(holding.thread_id), ctypes.py_object(JobTimeout)
            )
        self._made += 1
        replacement = self._thread(self._made)
        self._threads = [*(thread for thread in self._threads if thread.is_alive()), replacement]
        replacement.start()

    def _thread(self, number: int) -> threading.Thread:
        return threading.Thread(target=self._serve, args=(number,), name=f"pgqueue-job-{number}", daemon=True)

    def submit(self, holdings: Sequence[Holding]) -> None:
        """Run these jobs as threads become free."""
        with self._changed:
            self._waiting.extend(holdings)
            self._changed.notify(len(holdings))

    def take_unstarted(self) -> list[Holding]:
        """Return the jobs that no thread has begun, which then will not run."""
        with self._changed:
            taken = list(self._waiting)
            self._waiting.clear()
            return taken

    def stop(self, timeout: float) -> None:
        """Let the threads end after the job they are in, and wait up to `timeout` seconds for them."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout / len(self._threads))

    def _serve(self, number: int) -> None:
        room = self._room(number)
        holding: Holding | None = None
        try:
            while (holding := self._next()) is not None:
                began = time.monotonic()
                if self._hand_over(holding, partial(self._finish, holding, began)):
                    continue
                holding.thread_id = threading.get_ident()
                self._run_in(room, holding)
                if holding.abandoned:
                    break
        except JobTimeout:
            pass  # raised for a job that was given up, and that ended by itself just before
        finally:
            if holding is not None and holding.abandoned:
                with self._lock:
                    self._stuck -= 1
            room.close()

    def _run_in(self, room: Room, holding: Holding) -> None:
        room.before()
        began = time.monotonic()
        ending = self._run(holding)
        if os.getpid() != self._pid:
            os._exit(0)  # a fork that came back from the task: nothing here is its own
        ran_until = time.monotonic()
        room.after()
        with self._lock:
            holding.thread_id = None  # from here on there is nothing to interrupt
            if holding.abandoned:
                return
        self._finish(holding, began, ending, ran_until)

    def _finish(
        self, holding: Holding, began: float, ending: Ending | None, ran_until: float | None = None
    ) -> None:
        with self._changed:
            if holding in self._written_off:
                self._written_off.discard(holding)
                self._stuck -= 1
                return
            self._busy -= 1
            self._ran += 1
            self._seconds += (ran_until or time.monotonic()) - began
            if ran_until is None and self._waiting:  # a coroutine's slot: no thread is on its way back
                self._changed.notify()
        self._ended(holding, ending)

    def _next(self) -> Holding | None:
        with self._changed:
            while not (self._stopping or (self._waiting and self._busy < self._size)):
                self._changed.wait()
            if not self._waiting:
                return None
            self._busy += 1
            return self._waiting.popleft()


class Room(Protocol):
    """What surrounds the jobs of one thread."""

    def before(self) -> None:
        """Prepare for the next job."""

    def after(self) -> None:
        """Clean up after a job, whatever it did."""

    def close(self) -> None:
        """Clean up for good."""

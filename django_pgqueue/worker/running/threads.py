"""The threads that run jobs."""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue

from ...exceptions import JobTimeout
from ...holding import Holding
from ...outcomes import Ending
from .bench import Bench
from .coroutines import Coroutines
from .execution import Execution

LAST_COROUTINES_SECONDS = 0.5


class _Post:
    """What one thread is at. Written by that thread alone, so that no lock stands between the jobs of two threads.

    A lock that every job takes would be held by a thread that waits for the interpreter, again and again.
    `lock` is for `abandon` only.
    """

    __slots__ = ("busy", "holding", "lock", "number", "ran", "seconds", "thread")

    def __init__(self, number: int, serve: Callable[[_Post], None]) -> None:
        self.number = number
        self.lock = threading.Lock()
        self.busy = False
        self.holding: Holding | None = None
        self.ran = 0
        self.seconds = 0.0
        self.thread = threading.Thread(target=serve, args=(self,), name=f"pgqueue-job-{number}", daemon=True)


class ThreadPool:
    """`size` daemon threads; each job's ending goes to `ended`.

    A coroutine is handed over to the event loop, and has the slot of the thread that did so until it ends.
    """

    def __init__(
        self, size: int, *, execution: Execution, ended: Callable[[Holding, Ending | None], object], name: str
    ) -> None:
        self._size = size
        self._execution = execution
        self._ended = ended
        self._name = name
        self._coroutines = Coroutines(execution, over=self._coroutine_over)
        self._waiting: deque[Holding] = deque()  # written by the loop, taken from by the job threads
        self._calls: SimpleQueue[None] = SimpleQueue()  # at least one for each job that waits
        self._slots: SimpleQueue[None] = SimpleQueue()  # those that no thread has
        self._stuck: set[Holding] = set()  # given up, and still on a thread
        self._measured = (0, 0.0)
        self._stopping = False  # written by the main thread, read by the job threads
        self._posts = [_Post(number, self._serve) for number in range(size)]
        self._made = size

    def start(self) -> None:
        """Start the threads."""
        for post in self._posts:
            self._slots.put(None)
            post.thread.start()

    @property
    def free(self) -> int:
        """How many more jobs there is a slot for; negative while jobs wait for one."""
        # Read first: a job on its way to a thread counts twice then, and never not at all.
        waiting = len(self._waiting)
        return self._size - waiting - self._busy

    @property
    def _busy(self) -> int:
        return sum(post.busy for post in self._posts) + len(self._coroutines)

    def take_measure(self) -> tuple[int, float]:
        """Return how many jobs have ended since the last call, and for how many seconds they ran in all."""
        ran = self._coroutines.ran + sum(post.ran for post in self._posts)
        seconds = self._coroutines.seconds + sum(post.seconds for post in self._posts)
        before, self._measured = self._measured, (ran, seconds)
        return max(ran - before[0], 0), max(seconds - before[1], 0.0)

    def longest_wait(self) -> float:
        """Return for how many seconds the first waiting job has waited for a slot."""
        try:
            return time.monotonic() - self._waiting[0].held_since
        except IndexError:
            return 0.0

    @property
    def is_busy(self) -> bool:
        """Whether a thread is in a job, abandoned or not."""
        return self._busy + len(self._stuck) + self._coroutines.stuck > 0

    def abandon(self, holding: Holding) -> None:
        """Give up on a job that has run for too long, and put a new thread in the place of the one it holds.

        JobTimeout is raised in the old thread, which ends it at its next step in Python; one that never
        comes back from a call stays as it is, and can no longer write anything fenced.
        """
        if holding.fate.abandoned:
            return
        post = next((post for post in self._posts if post.holding is holding), None)
        if post is None:
            if self._coroutines.give_up(holding):
                self._slots.put(None)
            return
        with post.lock:  # so that it reaches a thread that is still in this job
            if post.holding is not holding:
                return
            holding.fate.abandoned = True
            self._stuck.add(holding)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(post.thread.ident or 0), ctypes.py_object(JobTimeout)
            )
        replacement = _Post(self._made, self._serve)
        self._made += 1
        self._posts = [*(each for each in self._posts if each is not post), replacement]
        self._slots.put(None)
        replacement.thread.start()

    def submit(self, holdings: Sequence[Holding]) -> None:
        """Run these jobs as threads become free."""
        self._waiting.extend(holdings)
        for _ in holdings:
            self._calls.put(None)

    def take_unstarted(self) -> list[Holding]:
        """Return the jobs that no thread has begun, which then will not run."""
        taken = []
        with suppress(IndexError):
            while True:
                taken.append(self._waiting.popleft())
        return taken

    def stop(self, timeout: float) -> None:
        """Let the threads end after the job they are in, and wait up to `timeout` seconds for them."""
        self._stopping = True
        for _ in self._posts:
            self._slots.put(None)
            self._calls.put(None)
        for post in self._posts:
            post.thread.join(timeout / len(self._posts))
        self._coroutines.stop(timeout=max(timeout, LAST_COROUTINES_SECONDS))

    def _serve(self, post: _Post) -> None:
        bench = Bench(self._execution, name=f"{self._name} {post.number}")
        holding: Holding | None = None
        has_slot = False
        try:
            while True:
                if not has_slot:
                    self._slots.get()
                holding = self._next(post)
                if holding is None:
                    break
                has_slot = not self._execution.is_async(holding)
                if not has_slot:
                    self._coroutines.add(holding)
                    post.busy = False  # before it starts: its end finds the slot free
                    self._coroutines.start(holding)
                elif not self._run_on(bench, post, holding):
                    break
        except JobTimeout:
            pass  # raised for a job that was given up, and that ended by itself just before
        finally:
            if holding is not None:
                self._stuck.discard(holding)
            bench.close()

    def _next(self, post: _Post) -> Holding | None:
        """Return the next job once there is one, None at the stop; `post` is busy from before the job waits no more."""
        while True:
            self._calls.get()
            if self._stopping:
                return None
            post.busy = True
            try:
                return self._waiting.popleft()
            except IndexError:  # it was taken back
                post.busy = False

    def _coroutine_over(self, holding: Holding, ending: Ending | None) -> None:
        self._slots.put(None)
        self._ended(holding, ending)

    def _run_on(self, bench: Bench, post: _Post, holding: Holding) -> bool:
        """Run a job on this thread; False if it was given up, and with it the thread."""
        post.holding = holding
        ending, seconds = bench.run(holding)
        with post.lock:
            post.holding = None  # from here on there is nothing to interrupt
            is_given_up = holding.fate.abandoned
        if is_given_up:
            return False
        post.ran += 1
        post.seconds += seconds
        post.busy = False
        self._ended(holding, ending)
        return True

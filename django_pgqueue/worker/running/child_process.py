"""A child process as its parent sees it."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from ...holding import Holding
from ...lease import Key
from .messages import News, Word

# How long a job may stand behind another one in the same child before it is asked back.
LONGEST_BEHIND_SECONDS = 0.5
LOOK_SECONDS = 0.01


class ChildProcess:
    """One child process and what it was given; the first of `given` is the job it is in."""

    def __init__(self, process: BaseProcess, pipe: Connection) -> None:
        self.process = process
        self.pipe = pipe
        self.given: deque[Holding] = deque()
        self.ready = False
        self.born_at = time.monotonic()
        self.told: dict[Key, News] = {}
        self.recalled: Key | None = None
        self.killed_in: Holding | None = None
        self._to_say: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._speak, name="pgqueue-child-pipe", daemon=True).start()

    def say(self, message: Any) -> None:
        """Send a message, without waiting: a child that is frozen does not read, and its pipe is soon full."""
        self._to_say.put(message)

    def ask_back(self) -> None:
        """Ask for what waits behind a job that turns out to be long."""
        if len(self.given) < 2:
            return
        head = self.given[0]
        waited = time.monotonic() - (head.run.started or time.monotonic())
        if self.recalled != head.lease.key and waited > LONGEST_BEHIND_SECONDS:
            self.recalled = head.lease.key
            self.say(Word.RECALL)

    def hang_up(self) -> None:
        """End the talk."""
        self._to_say.put(None)
        self.pipe.close()

    def end(self, seconds: float) -> None:
        """Wait for the process to end, at most so many seconds, and kill it if it has not.

        By looking: `join` waits for a pipe, which a process that the job started may have too, and once that
        has ended, which a job can bring about, for the process without limit.
        """
        until = time.monotonic() + seconds
        while self.process.exitcode is None and time.monotonic() < until:
            threading.Event().wait(LOOK_SECONDS)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()

    def _speak(self) -> None:
        with suppress(OSError):  # a child that is gone is found by its pipe's end
            while (message := self._to_say.get()) is not None:
                self.pipe.send(message)

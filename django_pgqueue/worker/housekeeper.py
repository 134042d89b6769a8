"""Runs the upkeep jobs, each at its own rate, on a thread and a connection of their own."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from django.db import DatabaseError, InterfaceError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ..connections import adopt, close_all, discard, retry_conflicts
from ..log import logger


class Chore(Protocol):
    """One kind of upkeep."""

    def run_once(self) -> int:
        """Do one bounded batch; return how many rows it changed."""
        ...


@dataclass(slots=True, kw_only=True)
class Turn:
    """A chore, its rate, whom to tell that it did something, and when it should come sooner than its rate."""

    chore: Chore
    every_seconds: float
    did: Callable[[], object] | None = None
    next_in: Callable[[], float | None] | None = None
    next_at: float = field(default=0.0)


class Housekeeper:
    """Gives every chore its turn, with jitter, so that several workers do not step on each other's feet."""

    def __init__(self, *, using: str, name: str, turns: Sequence[Turn]) -> None:
        self._using = using
        self._name = name
        self._turns = turns
        self._wake = threading.Event()
        self._stopping = False
        self._failures = 0
        self.busy_since: float | None = None
        self.connection: BaseDatabaseWrapper | None = None

    def stop(self) -> None:
        """End the thread after the turn it is in."""
        self._stopping = True
        self._wake.set()

    def hurry(self) -> None:
        """Give every chore that can come sooner its turn now."""
        for turn in self._turns:
            if turn.next_in is not None:
                turn.next_at = 0.0
        self._wake.set()

    def run(self) -> None:
        """Do the chores until stopped; the body of the thread."""
        self.connection = adopt(self._using, name=self._name)
        try:
            while not self._stopping:
                for turn in self._turns:
                    if time.monotonic() >= turn.next_at and not self._stopping:
                        self._take(turn)
                next_at = min(turn.next_at for turn in self._turns)
                self._wake.wait(max(next_at - time.monotonic(), 0.001))
                self._wake.clear()
        finally:
            close_all()

    def _take(self, turn: Turn) -> None:
        pause = turn.every_seconds * random.uniform(0.85, 1.15)
        self.busy_since = time.monotonic()
        turn.next_at = self.busy_since + pause
        try:
            if retry_conflicts(turn.chore.run_once):
                turn.next_at = 0.0  # there may be more
                if turn.did is not None:
                    turn.did()
            elif turn.next_in is not None and (seconds := turn.next_in()) is not None:
                turn.next_at = min(turn.next_at, time.monotonic() + seconds)
            self._failures = 0
        except (DatabaseError, InterfaceError) as error:
            self._failures += 1
            if self._failures in (1, 10, 100, 1000):
                line = str(error).strip().partition("\n")[0][:200]
                logger.warning("Upkeep failed (%s); trying again", line, extra={"event": "upkeep_failed"})
            discard(self._using)
            self.connection = connections[self._using]
            turn.next_at = time.monotonic() + max(pause, min(0.5 * self._failures, 5.0))
        finally:
            self.busy_since = None

"""Runs the upkeep, each kind at its own rate, on a thread and a session of its own."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...faults import retry_conflicts
from ...upkeep import Exhaust, Promote, Prune
from ..service import Service

RETRY_SECONDS = 0.5
LONGEST_RETRY_SECONDS = 5.0


@dataclass(slots=True, kw_only=True)
class Turn:
    """A chore, its rate, whom to tell that it did something, and when it should come sooner than its rate."""

    chore: Exhaust | Promote | Prune
    every_seconds: float
    did: Callable[[], object] | None = None
    next_in: Callable[[], float | None] | None = None
    next_at: float = field(default=0.0)  # written by upkeep, and by the listener, who hurries it


class Housekeeper:
    """Gives every chore its turn, with jitter, so that several workers do not step on each other's feet."""

    def __init__(self, *, using: str, name: str, turns: Sequence[Turn]) -> None:
        self.service = Service("upkeep", name=name, using=using)
        self._turns = turns

    def stop(self) -> None:
        """End the thread after the turn it is in."""
        self.service.stop()

    def hurry(self) -> None:
        """Give every chore that can come sooner its turn now."""
        for turn in self._turns:
            if turn.next_in is not None:
                turn.next_at = 0.0
        self.service.woken.set()

    def run(self) -> None:
        """Do the chores until stopped; the body of the thread."""
        with self.service.session():
            while not self.service.stopping:
                for turn in self._turns:
                    if time.monotonic() >= turn.next_at and not self.service.stopping:
                        self._give(turn)
                next_at = min(turn.next_at for turn in self._turns)
                self.service.wait(max(next_at - time.monotonic(), 0.001))

    def _give(self, turn: Turn) -> None:
        pause = turn.every_seconds * random.uniform(0.85, 1.15)
        turn.next_at = time.monotonic() + pause
        if (error := self.service.attempt(lambda: self._do(turn))) is not None:
            self.service.warn("upkeep_failed", "Upkeep failed (%s); trying again", error)
            turn.next_at = time.monotonic() + max(
                pause, self.service.retry_in(LONGEST_RETRY_SECONDS, RETRY_SECONDS)
            )

    def _do(self, turn: Turn) -> None:
        if retry_conflicts(turn.chore.run_once):
            turn.next_at = 0.0  # there may be more
            if turn.did is not None:
                turn.did()
        elif turn.next_in is not None and (seconds := turn.next_in()) is not None:
            turn.next_at = min(turn.next_at, time.monotonic() + seconds)

"""Random faults for the soak: each second one of them strikes one of the workers, or the server."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

import psycopg

from .processes import WorkerProcess
from .proxy import Proxy
from .stage import Stage

LETTERS = "ABCD"
CONCURRENCY = 4
# How often each strikes, in relation; the server only if it is the lab's own.
WEIGHTS = {"kill": 4, "stop": 3, "cut": 3, "freeze": 2, "refuse": 1, "terminate": 3, "restart": 2, "crash": 1}


@dataclass(slots=True)
class Seat:
    """One of the workers, with its proxy, and when what was done to it ends (monotonic seconds)."""

    letter: str
    proxy: Proxy
    process: WorkerProcess
    thaw_at: float | None = None
    open_at: float | None = None
    leaving: list[WorkerProcess] = field(default_factory=list)


class Chaos:
    """Strikes, and undoes in time what does not undo itself."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._random = stage.random
        self.struck: Counter[str] = Counter()
        self.exit_codes: Counter[int] = Counter()
        self.seats = [self._seat(letter, stage.proxy()) for letter in LETTERS]

    def _seat(self, letter: str, proxy: Proxy) -> Seat:
        return Seat(letter, proxy, self._worker(letter, proxy))

    def _worker(self, letter: str, proxy: Proxy) -> WorkerProcess:
        """Start a worker; the last one runs its jobs in child processes."""
        pool = "processes" if letter == LETTERS[-1] else "threads"
        return self._stage.worker(
            letter, via=proxy.target, concurrency=CONCURRENCY, wait=False, quiet=True, pool=pool
        )

    def strike(self) -> None:
        """Do one random thing."""
        names = [name for name in WEIGHTS if name != "crash" or self._stage.place.server]
        (name,) = self._random.choices(names, [WEIGHTS[name] for name in names])
        self.struck[name] += 1
        seat = self._random.choice(self.seats)
        getattr(self, f"_{name}")(seat)

    def _kill(self, seat: Seat) -> None:
        seat.process.kill()
        seat.thaw_at = None
        seat.process = self._worker(seat.letter, seat.proxy)

    def _stop(self, seat: Seat) -> None:
        if seat.thaw_at is None and seat.process.returncode is None:
            seat.process.freeze()
            seat.thaw_at = time.monotonic() + self._random.uniform(0.5, 6.0)

    def _cut(self, seat: Seat) -> None:
        seat.proxy.cut()

    def _freeze(self, seat: Seat) -> None:
        seat.proxy.freeze()
        seat.open_at = time.monotonic() + self._random.uniform(0.5, 6.0)

    def _refuse(self, seat: Seat) -> None:
        seat.proxy.refusing = True
        seat.proxy.cut()
        seat.open_at = time.monotonic() + self._random.uniform(0.5, 3.0)

    def _terminate(self, seat: Seat) -> None:
        self._stage.facts.value(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'pgqueue worker-%'"
        )

    def _restart(self, seat: Seat) -> None:
        """SIGTERM; its successor starts at once, while it drains."""
        if seat.thaw_at is None and seat.process.works:
            seat.process.stop()
            seat.leaving.append(seat.process)
            seat.process = self._worker(seat.letter, seat.proxy)

    def _crash(self, seat: Seat) -> None:
        server = self._stage.need_server()
        try:
            server.stop(immediately=True)
        finally:
            server.start()
        self._stage.facts.reconnect()

    def tidy(self, *, all_of_it: bool = False) -> None:
        """Undo what has lasted long enough, or everything; replace workers that have ended by themselves."""
        now = time.monotonic()
        for seat in self.seats:
            if seat.thaw_at is not None and (all_of_it or now >= seat.thaw_at):
                seat.process.thaw()
                seat.thaw_at = None
            if seat.open_at is not None and (all_of_it or now >= seat.open_at):
                seat.proxy.refusing = False
                seat.proxy.thaw()
                seat.open_at = None
            for process in [*seat.leaving]:
                if process.returncode is not None:
                    self.exit_codes[process.returncode] += 1
                    seat.leaving.remove(process)
            if seat.process.returncode is not None:
                self.exit_codes[seat.process.returncode] += 1
                seat.process = self._worker(seat.letter, seat.proxy)


# What a statement of the lab may meet while the server is being struck.
STRUCK = (psycopg.OperationalError, psycopg.InterfaceError)

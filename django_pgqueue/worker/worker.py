"""A worker: its threads, its start, its watch over them, and its end."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ..connections import cut
from ..context import Holding
from ..hints import CHANNELS
from ..log import logger
from ..states import State
from ..upkeep import Exhaust, Promote, Prune
from .announcer import Announcer
from .child import ChildSettings, spawn
from .claimer import SLOWEST_RECLAIM_SECONDS
from .coroutines import Coroutines
from .execution import Execution
from .heartbeat import Heartbeat
from .housekeeper import Housekeeper, Turn
from .hygiene import Hygiene
from .listener import Listener
from .loop import Loop
from .pool import ThreadPool
from .processes import ProcessPool
from .registry import Registry
from .settings import WorkerSettings
from .stopping import Signals

EXIT_OK = 0
EXIT_BROKEN = 1
WATCH_SECONDS = 1.0
# A statement of the worker that takes longer than this is stuck: no statement of it comes near.
STUCK_SECONDS = 20.0
LAST_WORDS_SECONDS = 5.0
PRUNE_SECONDS = 60.0


class Service(Protocol):
    """A thread with a database connection of its own, and since when it has been busy with it."""

    busy_since: float | None
    connection: BaseDatabaseWrapper | None


class Worker:
    """One worker process. `run` blocks until the worker has stopped and returns its exit code."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._registry = Registry(self._wake)
        self._heartbeat = Heartbeat(
            using=settings.using,
            name=f"pgqueue {settings.id} heartbeat",
            beat_seconds=settings.beat.total_seconds(),
            holdings=self._registry.holdings,
            row=self._row,
        )
        execution = Execution(settings.options, adopted=self._adopted)
        self._coroutines: Coroutines | None = None
        self._pool: ThreadPool | ProcessPool
        if settings.pool == "processes":
            self._pool = self._processes(execution)
            self._announcer = Announcer(self._pool.announce)
        else:
            self._pool = self._threads(execution)
            self._announcer = Announcer()
        self._loop = Loop(
            settings,
            pool=self._pool,
            registry=self._registry,
            announcer=self._announcer,
            wake=self._wake,
            stopping=self._stopping,
            timed_out=execution.timed_out,
        )
        self._housekeeper = Housekeeper(
            using=settings.using, name=f"pgqueue {settings.id} upkeep", turns=self._turns()
        )
        self._listener = Listener(
            using=settings.using,
            name=f"pgqueue {settings.id} listener",
            wake={
                CHANNELS[State.READY]: self._loop.hint,
                CHANNELS[State.SCHEDULED]: self._housekeeper.hurry,
            },
        )
        self._broken = False

    @property
    def fatal(self) -> str | None:
        """Why the worker could not start, for the person who started it."""
        return self._loop.fatal

    def stop(self) -> None:
        """Ask the worker to stop: claim nothing more, drain, give back the rest."""
        self._stopping.set()
        self._wake.set()

    def run(self) -> int:
        """Work until stopped. The first SIGTERM or SIGINT drains; a second one leaves at once."""
        with Signals() as signals:
            self._signals = signals
            heartbeat = self._thread("heartbeat", self._heartbeat.run)
            housekeeper = self._thread("upkeep", self._housekeeper.run)
            announcer = self._thread("signals", self._announcer.run)
            if self.settings.listen and not self.settings.batch:
                self._thread("listener", self._listener.run)
            over = threading.Event()
            loop = self._thread("loop", self._loop.run, over)
            self._pool.start()
            self._watch(over, signals)
            loop.join(LAST_WORDS_SECONDS)  # it pokes the signals once more
            self._listener.stop()
            self._housekeeper.stop()
            self._heartbeat.stop()
            self._announcer.stop()
            self._pool.stop(timeout=0.2)
            if self._coroutines is not None:
                self._coroutines.stop(timeout=0.5)
            self._join([heartbeat, housekeeper, announcer], signals)
        return EXIT_BROKEN if self._broken or self.fatal else EXIT_OK

    @property
    def has_stragglers(self) -> bool:
        """Whether a job is still running in a thread although its lease was given back."""
        return self._pool.is_busy

    def _threads(self, execution: Execution) -> ThreadPool:
        coroutines = self._coroutines = Coroutines(run=execution.arun)
        return ThreadPool(
            self.settings.concurrency,
            is_async=execution.is_async,
            hand_over=coroutines.take,
            cancel=coroutines.cancel,
            run=execution.run,
            ended=self._registry.end,
            room=lambda number: Hygiene(name=f"pgqueue {self.settings.id} job {number}"),
        )

    def _processes(self, execution: Execution) -> ProcessPool:
        return ProcessPool(
            self.settings.concurrency,
            spawn=lambda: spawn(
                ChildSettings(
                    using=self.settings.using,
                    backend=self.settings.backend,
                    name=f"pgqueue {self.settings.id} job",
                    names={alias: str(connections.settings[alias]["NAME"]) for alias in connections},
                )
            ),
            ended=self._registry.end,
            crashed=execution.crashed,
            adopted=self._adopted,
            wake=self._wake.set,
        )

    def _adopted(self, holding: Holding) -> None:
        if holding.lease.duration != self.settings.lease:
            self._heartbeat.nudge()
        if holding.timeout is not None:
            self._wake.set()  # the loop looks after it from now on

    def _thread(
        self, name: str, body: Callable[[], None], over: threading.Event | None = None
    ) -> threading.Thread:
        def guarded() -> None:
            try:
                if over is None:
                    self._loop.tried.wait()  # it says what is wrong with the database, if anything is
                if not self.fatal:
                    body()
            except BaseException:
                logger.critical(
                    "The %s thread of the worker broke", name, exc_info=True, extra={"event": "broken"}
                )
                self._broken = True
                self.stop()
            finally:
                # No other thread pokes: one that outlives `run` would write into a pipe that is closed by then.
                if over is not None:
                    self._loop.tried.set()
                    over.set()
                    self._signals.poke()

        thread = threading.Thread(target=guarded, name=f"pgqueue-{name}", daemon=True)
        thread.start()
        return thread

    def _watch(self, over: threading.Event, signals: Signals) -> None:
        asked = False
        while not over.is_set():
            signals.wait(WATCH_SECONDS)
            if signals.count and not asked:
                asked = True
                logger.info(
                    "Stopping: draining for at most %s; a second signal leaves at once",
                    self.settings.shutdown_timeout,
                )
                self.stop()
            self._heed_second(signals)
            for service in (self._loop, self._heartbeat, self._housekeeper, self._listener):
                self._unstick(service)

    def _join(self, threads: list[threading.Thread], signals: Signals) -> None:
        """Wait for the last words of the threads, which a frozen database session could hold up."""
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        for thread in threads:
            while thread.is_alive() and time.monotonic() < deadline:
                thread.join(0.1)
                self._heed_second(signals)

    def _heed_second(self, signals: Signals) -> None:
        if signals.count > 1 and signals.last is not None:
            logger.warning(
                "A second signal: leaving at once; %s jobs are left to their leases", len(self._registry)
            )
            logging.shutdown()
            os._exit(128 + signals.last)

    def _unstick(self, service: Service) -> None:
        """Cut the connection of a thread whose statement does not return: the server, or the way to it, is frozen."""
        since = service.busy_since
        if since is not None and service.connection and time.monotonic() - since > STUCK_SECONDS:
            logger.warning("A statement has not returned for %.0f s; cutting its connection", STUCK_SECONDS)
            cut(service.connection)

    def _turns(self) -> list[Turn]:
        using = self.settings.using
        reclaim_seconds = min(self.settings.lease.total_seconds() / 4, SLOWEST_RECLAIM_SECONDS)
        options = self.settings.options
        prune = Prune(using=using, keep_done=options.keep_done, keep_failed=options.keep_failed)
        turns = [
            Turn(chore=Exhaust(using=using, held=self._registry.keys), every_seconds=reclaim_seconds),
            Turn(chore=prune, every_seconds=PRUNE_SECONDS),
        ]
        if not self.settings.batch:  # a batch promotes by itself, to know when nothing is due
            every = self.settings.interval.total_seconds()
            promote = Promote(using=using)
            turns.append(
                Turn(chore=promote, every_seconds=every, did=self._loop.hint, next_in=promote.next_in)
            )
        return turns

    def _row(self) -> dict[str, Any]:
        return {
            "id": self.settings.id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "queues": list(self.settings.queues) if self.settings.queues is not None else ["*"],
            "concurrency": self.settings.concurrency,
            "running": len(self._registry),
            "draining": self._stopping.is_set(),
        }

"""A worker: its threads, its start, its watch over them, and its end."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from django.db import connections

from ..hints import CHANNELS
from ..holding import Holding
from ..log import about, logger
from ..states import State
from ..upkeep import Exhaust, Promote, Prune
from .loop.cycle import Cycle
from .loop.registry import Registry
from .os_signals import OsSignals
from .running.execution import Execution
from .running.pool import Pool
from .running.processes import ProcessPool
from .running.spawn import ChildSettings
from .running.threads import ThreadPool
from .service import Service
from .services.announcer import Announcer
from .services.heartbeat import Heartbeat
from .services.housekeeper import Housekeeper, Turn
from .services.listener import Listener
from .settings import PoolKind, WorkerSettings

EXIT_OK = 0
EXIT_BROKEN = 1
WATCH_SECONDS = 1.0
LAST_WORDS_SECONDS = 5.0
LAST_JOBS_SECONDS = 0.2
PRUNE_SECONDS = 60.0


class Worker:
    """One worker process. `run` blocks until the worker has stopped and returns its exit code."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self._stopping = threading.Event()
        self._loop = Service("loop", name=settings.name("loop"), using=settings.using)
        self._registry = Registry(self._loop.woken)
        self._execution = Execution(settings.options, on_options=self._note_options)
        self._pool, self._announcer = self._pool_and_announcer()
        self._cycle = Cycle(
            settings,
            service=self._loop,
            registry=self._registry,
            pool=self._pool,
            execution=self._execution,
            announcer=self._announcer,
            stopping=self._stopping,
        )
        self._heartbeat = Heartbeat(
            using=settings.using,
            name=settings.name("heartbeat"),
            beat_seconds=settings.beat.total_seconds(),
            holdings=self._registry.holdings,
            row=self._row,
        )
        self._housekeeper = Housekeeper(
            using=settings.using, name=settings.name("upkeep"), turns=self._turns()
        )
        self._listener = Listener(
            using=settings.using,
            name=settings.name("listener"),
            wake={
                CHANNELS[State.READY]: self._cycle.hint,
                CHANNELS[State.SCHEDULED]: self._housekeeper.hurry,
            },
        )
        self._is_broken = False  # written by a thread that broke, read by the main one at the end

    @property
    def fatal(self) -> str | None:
        """Why the worker could not start, for the person who started it."""
        return self._cycle.fatal

    @property
    def has_stragglers(self) -> bool:
        """Whether a job is still running in a thread although its lease was given back."""
        return self._pool.is_busy

    def stop(self) -> None:
        """Ask the worker to stop: claim nothing more, drain, give back the rest."""
        self._stopping.set()
        self._loop.woken.set()

    def run(self) -> int:
        """Work until stopped. The first SIGTERM or SIGINT drains; a second one leaves at once."""
        with OsSignals() as os_signals:
            over = threading.Event()
            beside: list[Heartbeat | Housekeeper | Announcer]
            beside = [self._heartbeat, self._housekeeper, self._announcer]
            for each in beside:
                each.service.start(self._beside_the_loop(each.service.role, each.run))
            if self.settings.listen and not self.settings.batch:
                self._listener.service.start(self._beside_the_loop("listener", self._listener.run))
            self._loop.start(lambda: self._run_loop(over, os_signals))
            self._pool.start()
            self._watch(over, os_signals)
            self._join([self._loop], os_signals)  # it pokes the signals once more
            self._listener.stop()
            for each in beside:
                each.stop()
            self._pool.stop(timeout=LAST_JOBS_SECONDS)
            self._join([each.service for each in beside], os_signals)
        return EXIT_BROKEN if self._is_broken or self.fatal else EXIT_OK

    def _run_loop(self, over: threading.Event, os_signals: OsSignals) -> None:
        try:
            self._guard("loop", self._cycle.run)
        finally:
            self._cycle.tried.set()
            over.set()
            os_signals.poke()  # no other thread does: one that outlives `run` would write into a pipe that is closed

    def _beside_the_loop(self, role: str, run: Callable[[], None]) -> Callable[[], None]:
        """Return the body of a thread that begins once the loop has tried the database, and said what is wrong."""

        def body() -> None:
            self._cycle.tried.wait()
            if not self.fatal:
                self._guard(role, run)

        return body

    def _guard(self, role: str, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException:
            logger.critical("The %s thread of the worker broke", role, exc_info=True, extra=about("broken"))
            self._is_broken = True
            self.stop()

    def _watch(self, over: threading.Event, os_signals: OsSignals) -> None:
        asked = False
        while not over.is_set():
            os_signals.wait(WATCH_SECONDS)
            if os_signals.count and not asked:
                asked = True
                logger.info(
                    "Stopping: draining for at most %s; a second signal leaves at once",
                    self.settings.shutdown_timeout,
                )
                self.stop()
            self._heed_second(os_signals)
            for each in (self._cycle, self._heartbeat, self._housekeeper, self._listener):
                each.service.cut_if_stuck()

    def _join(self, services: list[Service], os_signals: OsSignals) -> None:
        """Wait for the last words of the threads, which a frozen database session could hold up."""
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        for thread in [service.thread for service in services if service.thread is not None]:
            while thread.is_alive() and time.monotonic() < deadline:
                thread.join(0.1)
                self._heed_second(os_signals)

    def _heed_second(self, os_signals: OsSignals) -> None:
        if os_signals.count > 1 and os_signals.last is not None:
            logger.warning(
                "A second signal: leaving at once; %s jobs are left to their leases", len(self._registry)
            )
            logging.shutdown()
            os._exit(128 + os_signals.last)

    def _pool_and_announcer(self) -> tuple[Pool, Announcer]:
        settings = self.settings
        if settings.pool != PoolKind.PROCESSES:
            return ThreadPool(
                settings.concurrency,
                execution=self._execution,
                ended=self._registry.end,
                name=settings.name("job"),
            ), Announcer()
        children = ProcessPool(
            settings.concurrency,
            child=ChildSettings(
                using=settings.using,
                backend=settings.backend,
                name=settings.name("job"),
                names={alias: str(connections.settings[alias]["NAME"]) for alias in connections},
            ),
            execution=self._execution,
            ended=self._registry.end,
            on_options=self._note_options,
            wake=self._loop.woken.set,
        )
        return children, Announcer(children.announce)

    def _note_options(self, holding: Holding) -> None:
        if holding.lease.duration != self.settings.lease:
            self._heartbeat.nudge()
        if holding.run.timeout is not None:
            self._loop.woken.set()  # it looks after the time limit from now on

    def _turns(self) -> list[Turn]:
        settings, using = self.settings, self.settings.using
        options = settings.options
        turns = [
            Turn(
                chore=Exhaust(using=using, held=self._registry.keys), every_seconds=settings.reclaim_seconds
            ),
            Turn(
                chore=Prune(using=using, keep_done=options.keep_done, keep_failed=options.keep_failed),
                every_seconds=PRUNE_SECONDS,
            ),
        ]
        if not settings.batch:  # a batch promotes by itself, to know when nothing is due
            promote = Promote(using=using)
            every = settings.interval.total_seconds()
            turns.append(
                Turn(chore=promote, every_seconds=every, did=self._cycle.hint, next_in=promote.next_in)
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

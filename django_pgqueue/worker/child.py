"""A process of the pool `processes`: it runs jobs, one at a time, and says how each shall end."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from django.db import connections

from ..conf import raw_options, read_options
from ..context import Holding
from ..exceptions import JobCrashed, JobTimeout
from ..leases import Lease
from ..outcomes import Ended
from ..retry import Backoff
from ..spawn import run_in_child
from .announcer import Announcer
from .execution import Execution
from .hygiene import Hygiene
from .messages import Adopted, Announce, Completed, News, Ready, Recall, Result, Returned, Run, Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSettings:
    """What a child is told at its start. `names` are the databases' names, which a test run may have changed."""

    using: str
    backend: str
    name: str
    names: dict[str, str]


def spawn(settings: ChildSettings) -> tuple[BaseProcess, Connection]:
    """Start a child as a fresh interpreter: nothing of the parent's threads or connections crosses a fork."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=run_in_child, args=(__name__, theirs, asdict(settings)), name="pgqueue-child"
    )
    process.start()
    theirs.close()
    return process, ours


def main(pipe: Connection, given: dict[str, Any]) -> None:
    """Serve the parent until it says stop or is gone; the body of the process.

    `given` are the fields of ChildSettings: an instance could not be unpickled before Django is set up.
    """
    settings = ChildSettings(**given)
    for number in (signal.SIGINT, signal.SIGTERM):
        # The parent drains. A handler, not SIG_IGN, which the job's own child processes would inherit.
        signal.signal(number, lambda *_: None)
    for alias, name in settings.names.items():
        connections[alias].settings_dict["NAME"] = name
    Child(pipe, settings).serve()


class Child:
    """The threads of a child process: the main one runs jobs, another reads what the parent says."""

    def __init__(self, pipe: Connection, settings: ChildSettings) -> None:
        self._pipe = pipe
        self._speaking = threading.Lock()
        self._pid = os.getpid()
        self._using = settings.using
        self._stopping = threading.Event()
        self._held: dict[tuple[int, int], Holding] = {}
        self._todo: queue.SimpleQueue[Holding | Ended | None] = queue.SimpleQueue()
        self._hygiene = Hygiene(name=settings.name)
        self._announcer = Announcer()
        options = read_options(settings.backend, raw_options(settings.backend))
        self._execution = Execution(options, adopted=self._tell_adopted)

    def serve(self) -> None:
        """Run jobs until told to stop."""
        threading.Thread(target=self._listen, name="pgqueue-parent", daemon=True).start()
        self._say(Ready())
        while (item := self._todo.get()) is not None:
            if isinstance(item, Ended):
                self._announcer.send(item)
                self._hygiene.after()
            else:
                self._run(item)
        self._hygiene.close()

    def _run(self, holding: Holding) -> None:
        self._hygiene.before()
        began = time.monotonic()
        ending = self._execution.run(holding)
        if os.getpid() != self._pid:
            os._exit(0)  # a fork that came back from the task: the pipe and the connections are not its own
        seconds = time.monotonic() - began
        self._hygiene.after()
        self._held.pop(holding.lease.key, None)
        self._say(Result.of(holding.lease.key, ending, seconds))

    def _say(self, message: Any) -> None:
        with self._speaking:
            self._pipe.send(message)

    def _listen(self) -> None:
        try:
            while True:
                self._hear(self._pipe.recv())
        except (EOFError, OSError):
            os._exit(1)  # the parent is gone: the leases will tell

    def _hear(self, message: Any) -> None:
        if isinstance(message, Run):
            for lease in message.leases:
                self._take(lease, message.sent_at)
        elif isinstance(message, News):
            self._note(message)
        elif isinstance(message, Recall):
            self._return_unbegun()
        elif isinstance(message, Announce):
            self._todo.put(message.ended)
        elif isinstance(message, Stop):
            self._todo.put(None)

    def _take(self, lease: Lease, sent_at: float) -> None:
        holding = Holding(lease, sent_at=sent_at, stopping=self._stopping, using=self._using)
        holding.on_completed = self._tell_completed
        self._held[lease.key] = holding
        self._todo.put(holding)

    def _return_unbegun(self) -> None:
        kept: list[Ended | None] = []
        keys = set()
        with suppress(queue.Empty):
            while True:
                item = self._todo.get_nowait()
                if isinstance(item, Holding):
                    keys.add(item.lease.key)
                    self._held.pop(item.lease.key, None)
                else:
                    kept.append(item)
        for item in kept:
            self._todo.put(item)
        self._say(Returned(keys=frozenset(keys)))

    def _tell_completed(self, holding: Holding) -> None:
        if os.getpid() == self._pid:
            with suppress(OSError):  # the parent is gone
                self._say(Completed(key=holding.lease.key, result=holding.result))

    def _note(self, news: News) -> None:
        if news.stopping:
            self._stopping.set()
        holding = self._held.get(news.key)
        if holding is not None:
            holding.deadline = news.deadline
            holding.lost = news.lost
            holding.cancel_requested = news.cancel_requested

    def _tell_adopted(self, holding: Holding) -> None:
        lease = holding.lease
        self._say(
            Adopted(
                key=lease.key,
                duration=lease.duration,
                fencing=lease.fencing,
                timeout=holding.timeout,
                retry=holding.retry if isinstance(holding.retry, Backoff) else None,
                no_retry=tuple(
                    kind for kind in (JobTimeout, JobCrashed) if issubclass(kind, holding.no_retry)
                ),
            )
        )

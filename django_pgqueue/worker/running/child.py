"""A process of the pool `processes`: it runs jobs, one at a time, and says how each shall end."""

from __future__ import annotations

import os
import queue
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from django.db import connections

from ...announcing import tell_settled
from ...conf import raw_options, read_options
from ...exceptions import JobCrashed, JobTimeout
from ...holding import Holding
from ...lease import Key, Lease
from ...outcomes import Settled
from ...retry import Backoff
from .bench import Bench
from .execution import Execution
from .messages import Announce, Completed, News, OwnOptions, Result, Returned, Run, Word
from .spawn import ChildSettings


def main(pipe: Connection, settings: ChildSettings) -> None:
    """Serve the parent until it says stop or is gone; the body of the process."""
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
        self._held: dict[Key, Holding] = {}  # written by both threads, read by the one that hears
        self._todo: queue.SimpleQueue[Holding | Settled | None] = queue.SimpleQueue()
        options = read_options(settings.backend, raw_options(settings.backend))
        self._bench = Bench(Execution(options, on_options=self._tell_options), name=settings.name)

    def serve(self) -> None:
        """Run jobs until told to stop."""
        threading.Thread(target=self._listen, name="pgqueue-parent", daemon=True).start()
        self._say(Word.READY)
        while (item := self._todo.get()) is not None:
            if isinstance(item, Settled):
                tell_settled(item)
                self._bench.clean()
            else:
                self._run(item)
        self._bench.close()

    def _run(self, holding: Holding) -> None:
        ending, seconds = self._bench.run(holding)
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
        match message:
            case Run():
                for lease in message.leases:
                    self._hold(lease, message.sent_at)
            case News():
                self._note(message)
            case Word.RECALL:
                self._return_unbegun()
            case Announce():
                self._todo.put(message.settled)
            case Word.STOP:
                self._todo.put(None)

    def _hold(self, lease: Lease, sent_at: float) -> None:
        holding = Holding(lease, sent_at=sent_at, stopping=self._stopping, using=self._using)
        holding.on_completed = self._tell_completed
        self._held[lease.key] = holding
        self._todo.put(holding)

    def _return_unbegun(self) -> None:
        kept: list[Settled | None] = []
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
                self._say(Completed(key=holding.lease.key, result=holding.run.result))

    def _note(self, news: News) -> None:
        if news.stopping:
            self._stopping.set()
        holding = self._held.get(news.key)
        if holding is not None:
            holding.trust.deadline = news.deadline
            holding.trust.lost = news.lost
            holding.trust.cancel_requested = news.cancel_requested

    def _tell_options(self, holding: Holding) -> None:
        lease = holding.lease
        self._say(
            OwnOptions(
                key=lease.key,
                duration=lease.duration,
                fencing=lease.fencing,
                timeout=holding.run.timeout,
                retry=holding.run.retry if isinstance(holding.run.retry, Backoff) else None,
                no_retry=tuple(
                    kind for kind in (JobTimeout, JobCrashed) if issubclass(kind, holding.run.no_retry)
                ),
            )
        )

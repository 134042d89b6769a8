"""Sessions of several workers: a thread each, with a connection of its own, that does one thing when told to."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from django.db import connection

PATIENCE = 30


class Session:
    """One worker's connection. Commits do not wait for the disk: nothing here survives the test anyway."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=f"session {name}", daemon=True)
        self._thread.start()
        self.do(lambda: connection.cursor().execute("SET synchronous_commit = off"))

    def do(self, work: Callable[[], Any]) -> Any:
        """Run this on the session's connection, and return what it returns."""
        reply: Future[Any] = Future()
        self._work.put((work, reply))
        return reply.result(PATIENCE)

    def close(self) -> None:
        self._work.put(None)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        try:
            while (item := self._work.get()) is not None:
                work, reply = item
                try:
                    reply.set_result(work())
                except BaseException as error:
                    reply.set_exception(error)
        finally:
            connection.close()

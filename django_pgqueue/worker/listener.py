"""Listens for hints, on a thread and a connection of its own. A lost hint costs a poll, never a job."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

import psycopg
from django.db import DatabaseError, InterfaceError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ..connections import adopt, close_all, cut, discard, is_direct
from ..log import logger

WAIT_SECONDS = 5.0
LONGEST_RETRY_SECONDS = 5.0


class Listener:
    """Calls `wake[channel]` for each hint, and all of them after every (re)connection: LISTEN first, then read.

    It ends by itself behind a pooler, which cannot carry LISTEN.
    """

    def __init__(self, *, using: str, name: str, wake: Mapping[str, Callable[[], object]]) -> None:
        self._using = using
        self._name = name
        self._wake = wake
        self._stop = threading.Event()
        self._failures = 0
        self.busy_since: float | None = None
        self.connection: BaseDatabaseWrapper | None = None

    def stop(self) -> None:
        """End the thread, also out of its wait."""
        self._stop.set()
        if self.connection is not None:
            cut(self.connection)

    def run(self) -> None:
        """Listen until stopped; the body of the thread."""
        self.connection = adopt(self._using, name=self._name)
        try:
            while not self._stop.is_set():
                self._session()
        finally:
            close_all()

    def _session(self) -> None:
        try:
            self._listen()
        except (DatabaseError, InterfaceError, psycopg.Error) as error:
            if self._stop.is_set():
                return
            self._failures += 1
            if self._failures in (1, 10, 100, 1000):
                line = str(error).strip().partition("\n")[0][:200]
                logger.warning(
                    "Listening failed (%s); polling goes on", line, extra={"event": "listen_failed"}
                )
            discard(self._using)
            self.connection = connections[self._using]
            self._stop.wait(min(0.2 * self._failures, LONGEST_RETRY_SECONDS))

    def _listen(self) -> None:
        if not is_direct(self._using):
            logger.info("A pooler stands before the database: polling only", extra={"event": "not_listening"})
            self._stop.set()
            return
        connection = connections[self._using]
        with connection.cursor() as cursor:
            for channel in self._wake:
                cursor.execute(f"LISTEN {channel}")
        for wake in self._wake.values():
            wake()
        self._failures = 0
        raw: psycopg.Connection = connection.connection
        while not self._stop.is_set():
            silent = True
            for notification in raw.notifies(timeout=WAIT_SECONDS, stop_after=1):
                self._wake[notification.channel]()
                silent = False
            if silent:
                self._ask(connection)

    def _ask(self, connection: BaseDatabaseWrapper) -> None:
        """Make sure that the session still answers: a frozen one would be silent for ever."""
        self.busy_since = time.monotonic()
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
        finally:
            self.busy_since = None

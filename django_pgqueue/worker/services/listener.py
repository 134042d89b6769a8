"""Listens for hints, on a thread and a session of its own. A lost hint costs a poll, never a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import psycopg
from django.db import connections

from ...connections import cut, is_direct
from ...log import about, logger
from ..service import Service

WAIT_SECONDS = 5.0
LONGEST_RETRY_SECONDS = 5.0


class Listener:
    """Calls `wake[channel]` for each hint, and all of them after every (re)connection: LISTEN first, then read.

    It ends by itself behind a pooler, which cannot carry LISTEN.
    """

    def __init__(self, *, using: str, name: str, wake: Mapping[str, Callable[[], object]]) -> None:
        self.service = Service("listener", name=name, using=using)
        self._using = using
        self._wake = wake

    def stop(self) -> None:
        """End the thread, also out of its wait."""
        self.service.stop()
        if self.service.connection is not None:
            cut(self.service.connection)

    def run(self) -> None:
        """Listen until stopped; the body of the thread."""
        with self.service.session():
            while not self.service.stopping:
                error = self.service.attempt(self._listen)
                if error is not None and not self.service.stopping:
                    self.service.warn("listen_failed", "Listening failed (%s); polling goes on", error)
                    self.service.wait(self.service.retry_in(LONGEST_RETRY_SECONDS))
                del error  # or its traceback would be kept as long as the next session lives

    def _listen(self) -> None:
        if not is_direct(self._using):
            logger.info("A pooler stands before the database: polling only", extra=about("not_listening"))
            self.service.stop()
            return
        connection = connections[self._using]
        with connection.cursor() as cursor:
            for channel in self._wake:
                cursor.execute(f"LISTEN {channel}")
        for wake in self._wake.values():
            wake()
        self.service.failures = 0
        raw: psycopg.Connection = connection.connection
        while not self.service.stopping:
            with self.service.idle():
                heard = list(raw.notifies(timeout=WAIT_SECONDS, stop_after=1))
            for notification in heard:
                self._wake[notification.channel]()
            if not heard:
                with connection.cursor() as cursor:  # a frozen session would be silent for ever
                    cursor.execute("SELECT 1")

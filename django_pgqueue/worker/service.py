"""A thread of the worker with a database session of its own, which survives the loss of that session."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from django.db import DatabaseError, InterfaceError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ..connections import adopt, close_all, cut, discard
from ..faults import first_line
from ..log import about, logger

# A statement of the worker that takes longer than this is stuck: no statement of it comes near.
STUCK_SECONDS = 20.0
RETRY_SECONDS = 0.2
LOGGED_FAILURES = (1, 10, 100, 1000)


class Service:
    """One thread: its session, its waits, its failures and its end.

    `name` is the session's `application_name`; without `using` the thread opens no session of its own.
    """

    def __init__(self, role: str, *, name: str = "", using: str = "") -> None:
        self.role = role
        self._name = name
        self._using = using
        self.woken = threading.Event()  # ends a wait; set by any thread
        self.stopping = False  # written by whoever stops it, read by the thread
        self.failures = 0  # in a row; the thread's own
        # Written by the thread, read by the worker's watch.
        self.busy_since: float | None = None
        self.connection: BaseDatabaseWrapper | None = None
        self.thread: threading.Thread | None = None

    def start(self, body: Callable[[], None]) -> None:
        """Run `body` on the thread."""
        self.thread = threading.Thread(target=body, name=f"pgqueue-{self.role}", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Let the thread end after what it is at."""
        self.stopping = True
        self.woken.set()

    @contextmanager
    def session(self) -> Iterator[None]:
        """Give the current thread its session, and close all that it has opened at the end."""
        if self._using:
            self.connection = adopt(self._using, name=self._name)
        try:
            yield
        finally:
            close_all()

    def wait(self, seconds: float) -> bool:
        """Wait until woken, at most `seconds`; return whether somebody has."""
        woken = self.woken.wait(seconds)
        self.woken.clear()
        return woken

    def attempt(self, work: Callable[[], object]) -> Exception | None:
        """Do `work` on the session; return the error if the database failed it, with a fresh session for the next."""
        self.busy_since = time.monotonic()
        try:
            work()
        except (DatabaseError, InterfaceError, psycopg.Error) as error:
            self.failures += 1
            discard(self._using)
            self.connection = connections[self._using]
            return error
        finally:
            self.busy_since = None
        self.failures = 0
        return None

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Mark a wait inside an attempt as one on purpose: it is not stuck."""
        self.busy_since = None
        try:
            yield
        finally:
            self.busy_since = time.monotonic()

    def warn(self, event: str, text: str, error: Exception) -> None:
        """Log a failed attempt, now and then while they go on; `text` has a place for what the database said."""
        if self.failures in LOGGED_FAILURES:
            logger.warning(text, first_line(error), extra=about(event))

    def retry_in(self, longest: float, step: float = RETRY_SECONDS) -> float:
        """Return for how many seconds to wait after a failed attempt: `step` more each time."""
        return min(step * self.failures, longest)

    def cut_if_stuck(self) -> None:
        """Cut the connection if a statement does not return: the server, or the way to it, is frozen."""
        since = self.busy_since
        if since is not None and self.connection and time.monotonic() - since > STUCK_SECONDS:
            logger.warning("A statement has not returned for %.0f s; cutting its connection", STUCK_SECONDS)
            cut(self.connection)

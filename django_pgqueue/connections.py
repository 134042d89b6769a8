"""A thread's own database connections: opened under a name, kept, set aside, discarded, cut."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql.base import ServerBindingCursor
from psycopg import IsolationLevel
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format

CONNECT_TIMEOUT_SECONDS = 10


class BinaryCursor(ServerBindingCursor):
    """Gets its rows in PostgreSQL's binary format: as text, a time costs more than all else in a claimed job's row."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.format = Format.BINARY


class JsonbAsText(Loader):
    """Leaves jsonb to Django, which decodes it itself."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        """Return the JSON text after the byte that says its version."""
        return bytes(data)[1:].decode()


def adopt(alias: str, *, name: str) -> BaseDatabaseWrapper:
    """Give the current thread a direct connection of its own to `alias`, and return it.

    The connection is not taken from a pool, so that a heartbeat never waits behind a job; it is in
    READ COMMITTED, which the fenced statements rely on; it says who it is in `application_name`; and it
    notices a dead peer. Opened on first use.
    """
    wrapper = connections[alias].copy()
    options = {key: value for key, value in wrapper.settings_dict["OPTIONS"].items() if key != "pool"}
    wrapper.settings_dict["OPTIONS"] = {
        "connect_timeout": CONNECT_TIMEOUT_SECONDS,
        "keepalives_idle": 20,
        "keepalives_interval": 5,
        "keepalives_count": 4,
        "tcp_user_timeout": 30_000,
        **options,
        "isolation_level": IsolationLevel.READ_COMMITTED,
        "application_name": name[:63],
    }
    wrapper.settings_dict["CONN_MAX_AGE"] = None
    connections[alias].close()
    connections[alias] = wrapper
    return wrapper


def is_direct(alias: str) -> bool:
    """Return whether the current thread's session is the server's own, and not a pooler's. Opens it if need be.

    A pooler sends one transaction to one server session and the next to another. It greets in its own name: the
    process of its greeting is not the one that answers.
    """
    connection = connections[alias]
    connection.ensure_connection()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return bool(cursor.fetchone() == (connection.connection.info.backend_pid,))


def keep_statements(alias: str) -> bool:
    """Let the server keep the statements of the current thread's session, with their plans; not behind a pooler.

    Each is then parsed and planned once, for any number of rows; so its plan must not depend on how full the table
    was at that moment, which `enable_seqscan` sees to. Returns whether they are kept.
    """
    if not is_direct(alias):
        return False
    connection = connections[alias]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('plan_cache_mode', 'force_generic_plan', false),"
            " set_config('enable_seqscan', 'off', false)"
        )
    raw = connection.connection
    # Binary rows hold aware times only.
    raw.cursor_factory = ServerBindingCursor if connection.timezone is None else BinaryCursor
    raw.adapters.register_loader("jsonb", JsonbAsText)
    raw.prepare_threshold = 0
    return True


def name_connections(name: str) -> None:
    """Make the connections that the current thread opens from now on say `name` in `application_name`."""
    for alias in connections:
        connection = connections[alias]
        options = connection.settings_dict["OPTIONS"]
        if connection.vendor == "postgresql" and not options.get("pool"):
            wrapper = connection.copy()
            wrapper.settings_dict["OPTIONS"] = {**options, "application_name": name[:63]}
            connections[alias] = wrapper


def close_all() -> None:
    """Close the current thread's connections; for the end of a thread."""
    for connection in connections.all(initialized_only=True):
        with suppress(Exception):  # of a connection that is already broken: anything the driver has
            connection.close()


def discard(alias: str) -> None:
    """Drop the current thread's connection, in whatever state it is, for a fresh one that opens on first use."""
    spoilt = connections[alias]
    with suppress(Exception):
        spoilt.close()
    fresh = connections[alias] = spoilt.copy()
    fresh.execute_wrappers = spoilt.execute_wrappers


@contextmanager
def apart(alias: str) -> Iterator[None]:
    """Run a block whose statements on `alias` commit on their own, whatever transaction the caller is in.

    Inside a transaction the thread's connection is set aside for another one, and put back afterwards.
    """
    outer = connections[alias]
    if not outer.in_atomic_block and outer.get_autocommit():
        yield
        return
    inner = connections[alias] = outer.copy()
    try:
        yield
    finally:
        connections[alias] = outer
        inner.close()


def cut(connection: BaseDatabaseWrapper) -> None:
    """Shut the socket of another thread's connection, so that its blocked call returns with an error."""
    raw = connection.connection
    with suppress(Exception):
        if raw is not None:
            with socket.socket(fileno=raw.pgconn.socket) as watched:
                try:
                    watched.shutdown(socket.SHUT_RDWR)
                finally:
                    watched.detach()

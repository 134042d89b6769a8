"""Leaves a thread's database connections usable for the next job, whatever the last one did to them."""

from __future__ import annotations

import re
import select
from collections.abc import Callable
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ...connections import close_all, discard, name_connections

# Statements that change the session itself: what one job sets, the next job must not see.
_SESSION = re.compile(
    r"(?:\A|;)\s*(?:/\*.*?\*/\s*|--[^\n]*\n\s*)*"
    r"(?:SET|RESET|DISCARD|LISTEN|UNLISTEN|PREPARE|DEALLOCATE|LOAD|DECLARE"
    r"|CREATE\s+(?:(?:LOCAL|GLOBAL)\s+)?TEMP(?:ORARY)?)\b"
    r"|set_config|pg_advisory_lock|pg_try_advisory_lock",
    re.IGNORECASE | re.DOTALL,
)


class Cleaning:
    """The connections of one thread that runs jobs. Costs nothing until a job has opened one."""

    def __init__(self, *, name: str) -> None:
        name_connections(name)
        self._unopened = [connections[alias] for alias in connections]
        self._tainted: set[str] = set()
        for connection in self._unopened:
            connection.execute_wrappers.append(self._watch)

    def before(self) -> None:
        """Drop connections that died while idle, so that no job meets a connection that a restart closed."""
        if self._is_untouched():
            return
        for connection in connections.all(initialized_only=True):
            if connection.connection is not None and _has_news(connection):
                discard(connection.alias)

    def after(self) -> None:
        """Close what the job left unusable, obsolete (CONN_MAX_AGE), inside a transaction, or changed."""
        if self._is_untouched():
            return
        for connection in connections.all(initialized_only=True):
            try:
                if connection.alias in self._tainted or _is_spoilt(connection):
                    discard(connection.alias)
                elif connection.connection is not None:
                    connection.close_if_unusable_or_obsolete()
            except Exception:  # a job can break a connection in any way; the next job must not care
                discard(connection.alias)
            connection.queries_log.clear()
        self._tainted.clear()

    def close(self) -> None:
        """Close the thread's connections, at its end."""
        close_all()

    def _is_untouched(self) -> bool:
        """Whether no job of this thread has opened a connection, or made an alias: then there is nothing to look at."""
        if self._unopened and (
            any(connection.connection is not None for connection in self._unopened)
            or len(connections.settings) != len(self._unopened)
        ):
            self._unopened = []
        return bool(self._unopened)

    def _watch(
        self, execute: Callable[..., Any], statement: Any, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        if isinstance(statement, str) and _SESSION.search(statement):
            self._tainted.add(context["connection"].alias)
        return execute(statement, params, many, context)


def _is_spoilt(connection: BaseDatabaseWrapper) -> bool:
    return bool(
        connection.in_atomic_block
        or connection.savepoint_ids
        or connection.needs_rollback
        or connection.closed_in_transaction
        or connection.run_on_commit
        or (connection.connection is not None and _is_broken(connection))
    )


def _is_broken(connection: BaseDatabaseWrapper) -> bool:
    raw: Any = connection.connection
    if connection.vendor != "postgresql":
        return not connection.get_autocommit()
    return bool(raw.closed or not raw.autocommit or raw.info.transaction_status != 0)


def _has_news(connection: BaseDatabaseWrapper) -> bool:
    """Whether an idle session has something to read, which is the server's good-bye (or news nobody waits for)."""
    raw: Any = connection.connection
    if connection.vendor != "postgresql":
        return False
    if raw.closed:
        return True
    poll = select.poll()
    poll.register(raw.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))

"""What an error of the database means, and the bounded retry of the queue's own transactions."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import TypeVar

from django.db.utils import DataError, IntegrityError, InterfaceError, OperationalError

T = TypeVar("T")

# Connection exception, invalid transaction state (read-only), insufficient resources, operator intervention,
# system error.
_OUTAGE_CLASSES = frozenset({"08", "25", "53", "57", "58"})
# Data exception, integrity violation, program limit exceeded, and what no class was made for (too large to allocate).
_DATA_CLASSES = frozenset({"22", "23", "54", "XX"})
# serialization_failure and deadlock_detected: PostgreSQL rolled the transaction back, so nothing of it happened.
_CONFLICTS = frozenset({"40001", "40P01"})
CONFLICT_TRIES = 6
MAX_LINE_CHARS = 300


def sqlstate(error: BaseException) -> str | None:
    """Return the SQLSTATE of a database error, None if the server sent none (a lost connection)."""
    return getattr(error.__cause__, "sqlstate", None)


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, for a line of the log."""
    return str(error).strip().partition("\n")[0][:MAX_LINE_CHARS]


def is_about_data(error: BaseException) -> bool:
    """Whether the server refused what was to be stored, rather than to store anything now.

    A server that is read-only, out of space or being shut down refuses everything: that is an outage, and says
    nothing about the values.
    """
    return isinstance(error, DataError | IntegrityError) or (sqlstate(error) or "")[:2] in _DATA_CLASSES


def is_outage(error: BaseException) -> bool:
    """Whether the server is away, or refuses every write for now (read-only, out of space): worth another try."""
    return (
        isinstance(error, OperationalError | InterfaceError) or (sqlstate(error) or "")[:2] in _OUTAGE_CLASSES
    )


def retry_conflicts(work: Callable[[], T]) -> T:
    """Run `work`, one whole transaction of the queue's own, again after a deadlock or serialization failure.

    At most CONFLICT_TRIES runs, with jitter between. Only for work without effects outside the database.
    """
    for run in range(CONFLICT_TRIES):
        try:
            return work()
        except OperationalError as error:
            if sqlstate(error) not in _CONFLICTS or run == CONFLICT_TRIES - 1:
                raise
            threading.Event().wait(random.uniform(0.005, 0.02) * 2**run)
    raise AssertionError("unreachable")

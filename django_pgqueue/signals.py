"""Signals of the queue, beside the three of `django.tasks`. Receivers that raise are logged and change nothing."""

from __future__ import annotations

import logging
import weakref
from contextlib import suppress
from typing import Any

from django.dispatch import Signal
from django.utils.log import RequireDebugFalse, RequireDebugTrue

from .compat import TASKS_PACKAGE

_LOGGER = logging.getLogger(TASKS_PACKAGE)
_OWN_RECEIVERS = f"{TASKS_PACKAGE}.signals"
_ANY_RECORD = logging.makeLogRecord({})  # the filters by DEBUG do not look at it

# Sent when a write of a worker that no longer owns its job was refused and recorded.
# Arguments: job_id, generation, current_generation (int | None), action, verdict, worker,
# late_by (timedelta | None: how long after the loss).
completion_rejected = Signal()

# Sent when a worker learns that it no longer owns a job. Arguments: job_id, generation, worker.
lease_lost = Signal()

# Sent when a job has ended as failed. Arguments: job_id, generation, task, queue, kind.
job_failed = Signal()


def tell(signal: Signal, sender: Any, **named: Any) -> None:
    """Send a signal. Raises nothing: neither for a receiver, nor for a log handler that is told of one."""
    with suppress(BaseException):  # a receiver that calls sys.exit() ends no worker either
        signal.send_robust(sender, **named)


def is_heard(signal: Signal, level: int) -> bool:
    """Return whether sending a signal of `django.tasks` has any effect.

    `django.tasks` connects a receiver of its own to each, which writes a log line at `level`: it counts only
    if that line would be written.
    """
    if _is_written(level):
        return True
    return any(_home(entry[1]) != _OWN_RECEIVERS for entry in signal.receivers)


def _is_written(level: int) -> bool:
    """Return whether a line of `django.tasks` at `level` would reach a handler that lets it through.

    Django's default handlers are filtered by DEBUG: without this look at them, each job of a production worker
    would pay for two log records that nobody ever sees.
    """
    logger: logging.Logger | None = _LOGGER
    if not _LOGGER.isEnabledFor(level):
        return False
    found = False
    while logger is not None:
        for handler in logger.handlers:
            found = True
            if level >= handler.level and all(map(_may_pass, handler.filters)):
                return True
        logger = logger.parent if logger.propagate else None
    return not found and level >= logging.WARNING  # the handler of last resort


def _may_pass(item: object) -> bool:
    """Return whether a handler's filter may let a record through; only the filters by DEBUG say so beforehand."""
    return not isinstance(item, RequireDebugTrue | RequireDebugFalse) or bool(item.filter(_ANY_RECORD))


def _home(receiver: object) -> str | None:
    target = receiver() if isinstance(receiver, weakref.ReferenceType) else receiver
    return getattr(target, "__module__", None)

"""The one place that knows whether tasks come from Django 6 (`django.tasks`) or from the backport."""

from __future__ import annotations

import logging
import weakref
from importlib.util import find_spec
from typing import TYPE_CHECKING

import django
from django.core.exceptions import ImproperlyConfigured
from django.dispatch import Signal
from django.utils.log import RequireDebugFalse, RequireDebugTrue

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import (
        DEFAULT_TASK_BACKEND_ALIAS,
        DEFAULT_TASK_QUEUE_NAME,
        TaskContext,
        TaskResult,
        TaskResultStatus,
        task_backends,
    )
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import DEFAULT_TASK_PRIORITY, Task, TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
elif find_spec("django_tasks") is None:
    raise ImproperlyConfigured(
        "Django 5.2 has no django.tasks of its own: install the backport with the extra `backport` of"
        " django-pgqueue-leases, or `pip install django-tasks`."
    )
else:  # Django 5.2: the `django-tasks` backport
    from django_tasks import (
        DEFAULT_TASK_BACKEND_ALIAS,
        DEFAULT_TASK_QUEUE_NAME,
        TaskContext,
        TaskResult,
        TaskResultStatus,
        task_backends,
    )
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import DEFAULT_TASK_PRIORITY, Task, TaskError
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started

_LOGGER = logging.getLogger("django.tasks" if django.VERSION >= (6, 0) else "django_tasks")
_OWN_RECEIVERS = "django.tasks.signals" if django.VERSION >= (6, 0) else "django_tasks.signals"


_ANY_RECORD = logging.makeLogRecord({})  # the filters by DEBUG do not look at it


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


__all__ = [
    "DEFAULT_TASK_BACKEND_ALIAS",
    "DEFAULT_TASK_PRIORITY",
    "DEFAULT_TASK_QUEUE_NAME",
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "is_heard",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]

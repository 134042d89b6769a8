"""The one place that knows whether tasks come from Django 6 (`django.tasks`) or from the backport."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeGuard, cast

import django
from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:  # the stubs' generics, for any task and what it returns
    from typing import Any

    from django.tasks import DEFAULT_TASK_BACKEND_ALIAS, TaskResultStatus, base, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import DEFAULT_TASK_PRIORITY, DEFAULT_TASK_QUEUE_NAME, TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started

    Task = base.Task[..., Any]
    TaskResult = base.TaskResult[..., Any]
    TaskContext = base.TaskContext[..., Any]
elif django.VERSION >= (6, 0):
    from django.tasks import DEFAULT_TASK_BACKEND_ALIAS, TaskResult, TaskResultStatus, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import DEFAULT_TASK_PRIORITY, DEFAULT_TASK_QUEUE_NAME, Task, TaskContext, TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
elif find_spec("django_tasks") is None:
    raise ImproperlyConfigured(
        "Django 5.2 has no django.tasks of its own: install the backport with the extra `backport` of"
        " django-pgqueue-leases, or `pip install django-tasks`."
    )
else:  # Django 5.2: the `django-tasks` backport
    from django_tasks import DEFAULT_TASK_BACKEND_ALIAS, TaskResult, TaskResultStatus, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import DEFAULT_TASK_PRIORITY, DEFAULT_TASK_QUEUE_NAME, Task, TaskContext, TaskError
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started

TASKS_PACKAGE = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"


def is_task(value: object) -> TypeGuard[Task]:
    """Return whether `value` is a task, with or without this queue's options."""
    return isinstance(value, cast(type, Task))


__all__ = [
    "DEFAULT_TASK_BACKEND_ALIAS",
    "DEFAULT_TASK_PRIORITY",
    "DEFAULT_TASK_QUEUE_NAME",
    "BaseTaskBackend",
    "TASKS_PACKAGE",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "is_task",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]

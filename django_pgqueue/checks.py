"""System checks: settings that would only fail at night."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.core.management import find_commands
from django.db import connections

from .conf import backend_aliases, queues_of, queues_problem, raw_options, read_options
from .database import queue_database


@register
def check_queue(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check the backends in TASKS and what stands around them. Makes no query."""
    messages: list[CheckMessage] = []
    for alias in backend_aliases():
        messages += check_backend(alias)
    messages += _shared_queues()
    messages += _other_runworker()
    return messages


def check_backend(alias: str) -> list[CheckMessage]:
    """Check the options and the database of one backend."""
    try:
        options = read_options(alias, raw_options(alias))
    except ImproperlyConfigured as error:
        return [Error(str(error), hint="See the table of options in the README.", id="django_pgqueue.E001")]
    if problem := queues_problem(alias):
        hint = "Write a list, such as ['default', 'emails']; an empty one allows any name."
        return [Error(problem, hint=hint, id="django_pgqueue.E004")]
    database = queue_database(options.database)
    if connections[database].vendor != "postgresql":
        return [
            Error(
                f"TASKS[{alias!r}] keeps its jobs in DATABASES[{database!r}], which is not PostgreSQL.",
                hint="Set the DATABASE option to an alias of a PostgreSQL database.",
                id="django_pgqueue.E002",
            )
        ]
    return []


def _shared_queues() -> Iterable[CheckMessage]:
    owners: dict[tuple[str, str], str] = {}
    for alias in backend_aliases():
        try:
            database = queue_database(read_options(alias, raw_options(alias)).database)
        except ImproperlyConfigured:
            continue
        for queue in sorted(queues_of(alias)):
            other = owners.setdefault((database, queue), alias)
            if other != alias:
                yield Error(
                    f"The backends {other!r} and {alias!r} in TASKS share the queue {queue!r} in one database.",
                    hint="Give each backend queues of its own, or it is open whose options hold for a job.",
                    id="django_pgqueue.E003",
                )


def _other_runworker() -> Iterable[CheckMessage]:
    for config in apps.get_app_configs():
        if config.name != "django_pgqueue" and "runworker" in find_commands(f"{config.path}/management"):
            yield Warning(
                f"{config.label} has a command runworker too, and only one of them can be found.",
                hint="Run this queue's workers with manage.py pgqueue_worker.",
                id="django_pgqueue.W001",
                obj=config.label,
            )

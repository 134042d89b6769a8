"""Which database holds the queue."""

from __future__ import annotations

import pytest

from django_pgqueue.database import queue_database

BACKEND = "django_pgqueue.backend.PgQueueBackend"


class ToOther:
    def db_for_write(self, model, **hints):
        return "other" if model._meta.app_label == "django_pgqueue" else None


def backend(**options):
    return {"BACKEND": BACKEND, "OPTIONS": options}


@pytest.mark.parametrize(
    ("tasks", "routers", "expected"),
    [
        ({"default": backend()}, [], "default"),
        ({"default": backend()}, [ToOther()], "other"),
        ({"default": backend(DATABASE="other")}, [], "other"),
        ({"default": backend(DATABASE="default")}, [ToOther()], "default"),
        ({"default": backend(), "more": backend(DATABASE="other")}, [], "default"),
        ({"a": backend(DATABASE="other"), "b": backend(DATABASE="other")}, [], "other"),
        ({"default": {"BACKEND": "django.tasks.backends.dummy.DummyBackend"}}, [], "default"),
    ],
)
def test_the_admin_and_the_functions_find_the_queue(settings, tasks, routers, expected):
    """The DATABASE option if all backends agree on it, else the routers. Reports 114 and 117."""
    settings.TASKS = tasks
    settings.DATABASE_ROUTERS = routers
    assert queue_database() == expected
    assert queue_database("default") == "default"

"""Which database holds the queue."""

from __future__ import annotations

from django.apps import apps
from django.db import router

from .conf import configured_database


def queue_database(using: str | None = None) -> str:
    """Return the alias of the queue's database: `using`, the DATABASE option, or what the routers say for jobs."""
    return using or configured_database() or router.db_for_write(apps.get_model("django_pgqueue", "Job"))

"""django-ox."""

from . import TEXT
from .django_base import *  # noqa: F403
from .django_base import migrate as setup  # noqa: F401
from .django_tasks_db import enqueue, stamp  # noqa: F401

INSTALLED_APPS = ["django_ox"]
TASKS = {"default": {"BACKEND": "django_ox.backend.OxBackend"}}

TABLES = ["django_ox_oxtask"]
LEFT = f"SELECT EXISTS (SELECT FROM {TABLES[0]} WHERE status IN ('READY', 'RUNNING'))"
CHECK = f"""
    SELECT count(*) FILTER (WHERE status = 'SUCCESSFUL' AND attempts = 1), count(*), max(finished_at)
    FROM {TABLES[0]}
"""
WORKERS = {
    "defaults": ["-m", "django", "ox_worker"],
    "best": ["-m", "django", "ox_worker", "--concurrency", "4"],
}


def fill(count, kind):
    """Enqueue through the API for many."""
    from django_ox.bulk import enqueue_many

    from benchmarks.tasks import noop

    enqueue_many(noop, [((TEXT,), {}) for _ in range(count)])

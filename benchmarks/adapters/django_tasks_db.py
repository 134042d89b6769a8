"""django-tasks-db. It runs one task at a time and has no setting for speed."""

from . import TEXT
from .django_base import *  # noqa: F403
from .django_base import migrate as setup  # noqa: F401

INSTALLED_APPS = ["django_tasks_db"]
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}

TABLES = ["django_tasks_database_dbtaskresult"]
LEFT = f"SELECT EXISTS (SELECT FROM {TABLES[0]} WHERE status IN ('READY', 'RUNNING'))"
CHECK = f"""
    SELECT count(*) FILTER (WHERE status = 'SUCCESSFUL' AND jsonb_array_length(worker_ids) = 1),
           count(*), max(finished_at)
    FROM {TABLES[0]}
"""
WORKERS = {"defaults": ["-m", "django", "db_worker"]}


def fill(count, kind):
    """Enqueue in one transaction; there is no API for many."""
    from django.db import transaction

    with transaction.atomic():
        for _ in range(count):
            enqueue(TEXT)


def enqueue(text):
    """Enqueue one."""
    from benchmarks.tasks import noop

    noop.enqueue(text)


def stamp(sent):
    """Enqueue one that says when it runs."""
    from benchmarks.tasks import stamp

    stamp.enqueue(sent)

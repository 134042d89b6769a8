"""This project's queue."""

from importlib.util import find_spec

import django

from . import TEXT
from .django_base import *  # noqa: F403
from .django_base import migrate as setup  # noqa: F401

INSTALLED_APPS = [
    *(["django_tasks"] if django.VERSION < (6, 0) and find_spec("django_tasks") else []),
    "django_pgqueue",
]
TASKS = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}}

TABLES = [f"django_pgqueue_{name}" for name in ("job", "failure", "rejection", "effect")]
LEFT = """
    SELECT EXISTS (SELECT FROM django_pgqueue_job WHERE state = 'ready')
        OR EXISTS (SELECT FROM django_pgqueue_job WHERE state = 'running')
"""
CHECK = """
    SELECT count(*) FILTER (WHERE state = 'done' AND attempts = 1 AND cardinality(worker_ids) = generation)
               - (SELECT count(*) FROM django_pgqueue_failure WHERE job_id > %(mark)s)
               - (SELECT count(*) FROM django_pgqueue_rejection WHERE job_id > %(mark)s),
           count(*), max(finished_at),
           -- claimed, given back without having been begun, and claimed again: no loss, but no use either
           count(*) FILTER (WHERE generation > 1)
    FROM django_pgqueue_job WHERE id > %(mark)s
"""
MARK = "SELECT COALESCE(max(id), 0) FROM django_pgqueue_job"
_WORKER = ["-m", "django", "runworker"]
WORKERS = {
    "defaults": _WORKER,
    "tuned": [*_WORKER, "--concurrency", "1"],
    "processes": [*_WORKER, "--pool", "processes", "--concurrency", "2"],
    "polling": [*_WORKER, "--no-listen"],
}


def fill(count, kind):
    """Enqueue through the API for many."""
    from benchmarks import tasks

    getattr(tasks, kind).enqueue_many((TEXT,) for _ in range(count))


def enqueue(text):
    """Enqueue one."""
    from benchmarks.tasks import noop

    noop.enqueue(text)


def stamp(sent):
    """Enqueue one that says when it runs."""
    from benchmarks.tasks import stamp

    stamp.enqueue(sent)

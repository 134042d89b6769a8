"""Jobs that ended so long ago."""

from __future__ import annotations

from datetime import timedelta

from django.db.models.functions import Now

from django_pgqueue.models import Job
from tests.races.tools import new_jobs

DAY = timedelta(days=1)


def ended(state: str, ago: timedelta, count: int = 1) -> list[int]:
    """Insert jobs that were enqueued and ended so long ago."""
    ids = new_jobs(count, state=state, generation=1, attempts=1, worker_ids=["A"])
    then = Now() - ago
    Job.objects.filter(pk__in=ids).update(enqueued_at=then, started_at=then, finished_at=then)
    return ids


def left() -> set[int]:
    return set(Job.objects.values_list("pk", flat=True))

"""Scheduled jobs whose time has come."""

from datetime import timedelta

import pytest
from django.utils import timezone

from django_pgqueue import task
from django_pgqueue.leases import claim
from django_pgqueue.models import Job
from django_pgqueue.upkeep import promote

WORKER = "somebody-1"


@task
def keep(*args: object, **kwargs: object) -> None:
    """Do nothing with anything."""


@pytest.mark.django_db
def test_a_scheduled_job_is_promoted_when_its_time_has_come_and_not_before() -> None:
    keep.using(run_after=timedelta(hours=1)).enqueue("later")
    due = keep.using(run_after=timedelta(hours=1)).enqueue("due")
    assert promote() == 0
    Job.objects.filter(pk=due.id).update(run_after=timezone.now() - timedelta(seconds=1))
    assert promote() == 1
    assert [lease.job_id for lease in claim(worker=WORKER, limit=5)] == [int(due.id)]

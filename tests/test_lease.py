"""A lease as a value: its fields are the columns that a claim returns."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_pgqueue import leases
from django_pgqueue.lease import Lease, columns, left_alone
from django_pgqueue.models import Job

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


@pytest.fixture
def job() -> Job:
    """Give a ready job no two columns of which are alike."""
    return Job.objects.create(
        task="shop.tasks.send",
        payload={"args": [1], "kwargs": {"two": 2}},
        queue="emails",
        priority=7,
        backend="mails",
        generation=11,
        attempts=2,
        max_attempts=6,
        worker_ids=["before"],
        started_at=timezone.now() - 2 * MINUTE,
    )


def agrees(lease: Lease, job: Job) -> bool:
    job.refresh_from_db()
    return lease[:13] == (
        *(
            job.pk,
            job.generation,
            job.attempts,
            job.max_attempts,
            job.task,
            job.queue,
            job.priority,
            job.backend,
        ),
        *(lease.payload, job.worker_ids, job.enqueued_at, job.started_at, job.last_attempted_at),
    )


def test_each_field_of_a_claimed_lease_is_the_column_of_its_name(job: Job) -> None:
    (lease,) = leases.claim(worker="me", lease=MINUTE)
    assert agrees(lease, job)
    assert lease.arguments() == ([1], {"two": 2})
    assert (lease.worker, lease.duration, lease.fencing) == ("me", MINUTE, "token")
    assert (lease.key, lease.position) == ((job.pk, 12), (-7, job.pk))


def test_a_claim_a_reclaim_and_the_search_for_orphans_return_the_same_columns(job: Job) -> None:
    (claimed,) = leases.claim(worker="me", lease=MINUTE)
    (orphan,) = leases.orphans(worker="me", known=(), lease=MINUTE, using="default")
    assert orphan == claimed
    Job.objects.update(lease_until=timezone.now() - MINUTE)
    (reclaimed,) = leases.reclaim(worker="you", lease=MINUTE)
    assert agrees(reclaimed, job)
    assert reclaimed.generation == 13


def test_statements_take_leases_and_keys_as_columns(job: Job) -> None:
    (lease,) = leases.claim(worker="me")
    assert columns([lease, lease]) == {"ids": [job.pk] * 2, "generations": [12, 12]}
    assert left_alone({lease.key}) == {"held_ids": [job.pk], "held_generations": [12]}

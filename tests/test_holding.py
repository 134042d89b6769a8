"""A lease as the threads of a worker share it."""

from __future__ import annotations

import pytest

from django_pgqueue import task
from django_pgqueue.models import Job
from tests.races.tools import claim_one
from tests.worker.held import hold


@task
def nothing() -> None:
    """Do nothing."""


@pytest.mark.django_db(transaction=True)
def test_a_job_inside_its_own_completion_can_still_be_overdue() -> None:
    """The body of a transactional task is inside it. Report 135."""
    from django_pgqueue.context.fence import completing

    nothing.enqueue()
    holding = hold(claim_one())
    holding.run.timeout, holding.run.started = 0.0, 0.0
    with completing(holding):
        assert holding.is_overdue
    assert not holding.is_overdue
    assert Job.objects.get().state == "done"

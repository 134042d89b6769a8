"""Jobs whose last lease ran out."""

import pytest

from django_pgqueue import leases, outcomes, upkeep
from django_pgqueue.models import Failure, Job
from django_pgqueue.states import Verdict
from tests.outcomes.writes import WRITES, every_write
from tests.races.tools import (
    expire,
    new_jobs,
    only_rejection,
    row,
)

pytestmark = pytest.mark.django_db(transaction=True)


def test_exhaustion_fails_spent_jobs_and_cancels_those_that_were_to_be_cancelled():
    """A worker lost in the last allowed attempt; the row ends, with a failure that says so. Report 8."""
    spent, cancelled, left, live = new_jobs(4, max_attempts=2)
    Job.objects.filter(pk=spent).update(max_attempts=1)
    leases.claim(worker="A", limit=4)
    outcomes.cancel(cancelled)
    assert upkeep.exhaust() == []
    expire(spent, cancelled, left)

    ended = {item.job_id: item.state for item in upkeep.exhaust()}
    assert ended == {spent: "failed", cancelled: "cancelled"}
    for job_id, state in ended.items():
        job = row(job_id)
        assert (job.state, job.generation, job.attempts, job.lease_until) == (state, 1, 1, None)
        assert job.finished_at is not None
    by_job = {failure.job_id: failure for failure in Failure.objects.all()}
    assert set(by_job) == {spent, cancelled}
    assert (by_job[spent].kind, by_job[spent].worker, by_job[spent].generation) == ("lease_expired", "A", 1)
    assert "the last of 1 attempts" in by_job[spent].message
    assert "cancellation had been requested" in by_job[cancelled].message
    assert upkeep.exhaust() == []
    assert (row(left).state, row(live).state) == ("running", "running")


@every_write
def test_a_write_after_the_lease_s_end_had_confirmed_a_cancellation_is_refused(action, lease):
    """It was not this write that ended the job, so it is not "already accepted"."""
    outcomes.cancel(lease.job_id)
    expire(lease.job_id)
    assert upkeep.exhaust()[0].state == "cancelled"
    assert WRITES[action](lease) == Verdict.NOT_RUNNING
    rejection = only_rejection(lease.job_id)
    assert (rejection.action, rejection.seen_state) == (action, "cancelled")
    assert rejection.late_by is not None

"""An old worker's ending against a reclaim, in both orders, and against locks of others."""

from datetime import timedelta

import pytest
from django.db import transaction

from django_pgqueue import leases, outcomes
from django_pgqueue.lab.waiting import until
from django_pgqueue.models import Failure, Job, Rejection
from django_pgqueue.states import Verdict
from tests.races.tools import (
    PATIENCE,
    InThread,
    at_once,
    claim_one,
    end_batch,
    expire,
    new_job,
    new_jobs,
    only_rejection,
    row,
    session,
    wait_until_blocked,
)

pytestmark = pytest.mark.django_db(transaction=True)

LOCK = "SELECT id FROM django_pgqueue_job WHERE id = %s FOR UPDATE"


@pytest.fixture
def lease():
    new_job()
    return claim_one("A")


@pytest.mark.parametrize(
    "ending",
    [
        lambda lease: outcomes.complete(lease, "late"),
        lambda lease: outcomes.fail(lease, ValueError("late")),
        lambda lease: outcomes.release(lease),
    ],
    ids=["complete", "fail", "release"],
)
def test_an_ending_waits_for_an_uncommitted_reclaim_and_then_matches_nothing(ending, lease):
    """The second article's race, B first: A's UPDATE waits, re-evaluates its WHERE and sees generation 2."""
    expire(lease.job_id)
    with transaction.atomic():
        (newer,) = leases.reclaim(worker="B")
        late = InThread(lambda: ending(lease))
        wait_until_blocked(late.pid)
    assert late.result() == Verdict.SUPERSEDED

    job = row(lease.job_id)
    assert (job.state, job.generation, job.attempts, job.result) == ("running", 2, 2, None)
    rejection = only_rejection(lease.job_id)
    assert (rejection.generation, rejection.current_generation, rejection.worker) == (1, 2, "A")
    assert outcomes.complete(newer, "in time") == Verdict.ACCEPTED


def test_a_reclaim_skips_the_row_of_an_uncommitted_completion_and_finds_it_done_after_the_commit(lease):
    """The same race, A first."""
    expire(lease.job_id)
    with transaction.atomic():
        assert outcomes.complete(lease, "late, but the only one") == Verdict.ACCEPTED
        assert InThread(lambda: leases.reclaim(worker="B")).result() == []
    assert leases.reclaim(worker="B") == []
    assert leases.claim(worker="B") == []
    job = row(lease.job_id)
    assert (job.state, job.generation, job.result) == ("done", 1, "late, but the only one")
    assert not Rejection.objects.exists()
    assert not Failure.objects.exists()


def test_after_a_completion_that_rolled_back_the_job_is_reclaimed(lease):
    expire(lease.job_id)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        assert outcomes.complete(lease) == Verdict.ACCEPTED
        raise ZeroDivisionError
    assert row(lease.job_id).state == "running"
    assert leases.reclaim(worker="B")[0].generation == 2


def test_an_ending_that_waited_for_a_reclaim_that_rolled_back_is_accepted(lease):
    expire(lease.job_id)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        assert len(leases.reclaim(worker="B")) == 1
        late = InThread(lambda: outcomes.complete(lease, "the only result"))
        wait_until_blocked(late.pid)
        raise ZeroDivisionError
    assert late.result() == Verdict.ACCEPTED
    assert row(lease.job_id).result == "the only result"
    assert not Rejection.objects.exists()


@pytest.mark.parametrize("changed", [True, False], ids=["changed row", "unchanged row"])
def test_a_strict_completion_judges_its_lease_by_the_clock_at_the_end_of_its_wait(changed):
    """It waits behind a lock while the lease runs out: the clock is read when the row is had, not before."""
    new_job()
    strict = claim_one(lease=timedelta(milliseconds=1500))._replace(fencing="strict")
    with session() as other:
        other.execute(LOCK, [strict.job_id])
        if changed:
            other.execute("UPDATE django_pgqueue_job SET priority = 1 WHERE id = %s", [strict.job_id])
        late = InThread(lambda: outcomes.complete(strict))
        wait_until_blocked(late.pid)
        assert not Job.objects.expired().exists()
        until(Job.objects.expired().exists, "the lease has run out", within=PATIENCE)
        other.commit()
    assert late.result() == Verdict.EXPIRED
    assert row(strict.job_id).state == "running"


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "rolled back"])
def test_two_completions_of_one_generation_at_once_end_the_job_once(lease, commit):
    with session() as other:
        other.execute(
            "UPDATE django_pgqueue_job SET state = 'done', lease_until = NULL, result = '1', "
            "finished_at = clock_timestamp() WHERE id = %s AND generation = 1",
            [lease.job_id],
        )
        second = InThread(lambda: outcomes.complete(lease, 2))
        wait_until_blocked(second.pid)
        other.commit() if commit else other.rollback()
    assert second.result() == (Verdict.ALREADY_ACCEPTED if commit else Verdict.ACCEPTED)
    assert row(lease.job_id).result == (1 if commit else 2)
    assert not Rejection.objects.exists()


def test_a_batch_does_not_stand_behind_one_locked_row():
    """The loop says "busy" of the locked one, and its later try is accepted. Report 19."""
    job_ids = new_jobs(3)
    batch = [outcomes.Ending.done(item) for item in leases.claim(worker="A", limit=3)]
    with session() as other:
        other.execute(LOCK, [job_ids[1]])
        with transaction.atomic():
            accepted = outcomes.end(batch, using="default")
        replies = {
            item.ending.lease.job_id: item for item in outcomes.settle(batch, accepted, using="default")
        }
    assert [replies[job_id].verdict for job_id in job_ids] == [Verdict.ACCEPTED, None, Verdict.ACCEPTED]
    assert replies[job_ids[1]].busy
    assert not Rejection.objects.exists()
    assert [item.verdict for item in end_batch([replies[job_ids[1]].ending])] == [Verdict.ACCEPTED]


def test_of_two_reclaimed_and_racing_workers_exactly_one_ends_each_job():
    """Sixty jobs; the old and the new worker complete all of them at the same moment. Report 15."""
    job_ids = new_jobs(60)
    old = leases.claim(worker="A", limit=60)
    expire(*job_ids)
    new = leases.reclaim(worker="B", limit=60)
    both = at_once(
        lambda: [outcomes.complete(item, "A") for item in old],
        lambda: [outcomes.complete(item, "B") for item in reversed(new)],
    )
    assert both == [[Verdict.SUPERSEDED] * 60, [Verdict.ACCEPTED] * 60]
    assert {row(job_id).result for job_id in job_ids} == {"B"}
    assert Rejection.objects.count() == 60


def test_completion_and_reclaim_of_expired_leases_at_once_leave_one_winner_each():
    """Per job either the late completion is the only result, or the reclaim makes it a refused one.

    Reports 15 and 20.
    """
    job_ids = new_jobs(100)
    held = leases.claim(worker="A", limit=100)
    expire(*job_ids)

    def reclaim_all():
        taken = []
        for _ in range(20):
            taken += leases.reclaim(worker="B", limit=10)
        return taken

    verdicts, taken = at_once(lambda: [outcomes.complete(item, "A") for item in reversed(held)], reclaim_all)
    verdict_of = dict(zip([item.job_id for item in reversed(held)], verdicts, strict=True))
    lost = {item.job_id for item in taken}
    assert {job_id for job_id, verdict in verdict_of.items() if verdict != Verdict.ACCEPTED} == lost
    assert {verdict_of[job_id] for job_id in lost} <= {Verdict.SUPERSEDED}
    assert set(Rejection.objects.values_list("job_id", flat=True)) == lost
    for job_id in job_ids:
        expected = ("running", 2, None) if job_id in lost else ("done", 1, "A")
        job = row(job_id)
        assert (job.state, job.generation, job.result) == expected

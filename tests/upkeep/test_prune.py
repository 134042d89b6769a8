"""Retention: what is deleted, what is kept, and that it disturbs nobody."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now

from django_pgqueue import leases, outcomes
from django_pgqueue.models import Effect, Failure, Job, Rejection, Worker
from django_pgqueue.upkeep import Prune
from tests.races.tools import at_once, claim_one, new_job, new_jobs, reclaimed, row, session
from tests.upkeep.rows import DAY, ended, left

pytestmark = pytest.mark.django_db(transaction=True)


def prune(
    keep_done: timedelta | None = DAY, keep_failed: timedelta | None = 14 * DAY, page: int = 2000
) -> int:
    """Walk all the way."""
    chore = Prune(using="default", keep_done=keep_done, keep_failed=keep_failed, page=page)
    deleted = 0
    while (count := chore.run_once()) or chore.after:
        deleted += count
    return deleted


@pytest.mark.parametrize(
    ("state", "kept_for"), [("done", DAY), ("failed", 14 * DAY), ("cancelled", 14 * DAY)]
)
def test_an_ended_job_is_kept_for_its_time_and_no_longer(state, kept_for):
    (young,) = ended(state, kept_for - timedelta(minutes=1))
    (old,) = ended(state, kept_for + timedelta(minutes=1))
    assert prune() == 1
    assert left() == {young}
    assert old not in left()


def test_none_keeps_them_for_ever():
    done, failed = ended("done", 3000 * DAY), ended("failed", 3000 * DAY)
    assert prune(keep_done=None, keep_failed=None) == 0
    assert prune(keep_done=None) == 1
    assert left() == set(done)
    failed = ended("failed", 3000 * DAY)
    assert prune(keep_failed=None) == 1
    assert left() == set(failed)


def test_zero_deletes_what_has_ended_at_the_next_turn():
    new_job()
    outcomes.complete(claim_one())
    assert prune(keep_done=timedelta(0)) == 1
    assert left() == set()


def test_running_and_waiting_jobs_are_never_deleted_however_old():
    """Also those with a stale end of an earlier life. Report 117."""
    ids = [
        new_job(),
        new_job(state="scheduled"),
        new_job(state="running", lease_until=Now() - 400 * DAY, generation=1, attempts=1, worker_ids=["A"]),
    ]
    Job.objects.update(enqueued_at=Now() - 400 * DAY, finished_at=Now() - 400 * DAY)
    assert prune(timedelta(0), timedelta(0)) == 0
    assert left() == set(ids)


def test_the_records_of_a_job_go_with_it_and_those_of_others_stay():
    jobs = new_jobs(2)
    for old in leases.claim(worker="A", limit=2):
        Effect.objects.create(job_id=old.job_id, key="mail", generation=1)
        newer = reclaimed(old)  # leaves a failure
        outcomes.complete(old)  # leaves a rejection
        outcomes.complete(newer)
    Job.objects.filter(pk=jobs[0]).update(finished_at=Now() - 2 * DAY)
    assert prune() == 1
    for model in (Failure, Effect, Rejection):
        assert set(model.objects.values_list("job_id", flat=True)) == {jobs[1]}


def test_a_row_that_somebody_has_locked_is_left_for_the_next_turn():
    ids = ended("done", 2 * DAY, 3)
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '1s'")
    with session() as other:
        other.execute("SELECT id FROM django_pgqueue_job WHERE id = %s FOR UPDATE", [ids[1]])
        assert prune() == 2
        assert left() == {ids[1]}
    assert prune() == 1
    with connection.cursor() as cursor:
        cursor.execute("RESET lock_timeout")


def test_a_job_that_an_operator_retries_at_this_moment_is_not_deleted():
    (job_id,) = ended("failed", 20 * DAY)
    with session() as other:
        other.execute(
            "UPDATE django_pgqueue_job SET state = 'ready', finished_at = NULL, attempts = 0 WHERE id = %s",
            [job_id],
        )
        assert prune() == 0
        other.commit()
    assert prune() == 0
    assert row(job_id).state == "ready"


def test_the_walk_goes_past_rows_that_are_kept_for_longer():
    kept = ended("failed", 2 * DAY, 25)
    ended("done", 2 * DAY, 10)
    assert prune(page=10) == 10
    assert left() == set(kept)


def test_one_turn_deletes_at_most_one_page_and_the_next_goes_on_from_there():
    ended("done", 2 * DAY, 25)
    chore = Prune(using="default", keep_done=DAY, keep_failed=DAY, page=10)
    assert [chore.run_once() for _ in range(4)] == [10, 10, 5, 0]
    assert chore.after == 0


def test_the_walk_ends_at_the_first_page_of_young_jobs():
    ended("done", 2 * DAY, 5)
    new_jobs(5)  # one of the second page is young
    ended("done", 2 * DAY, 10)  # out of the order of their ids: not reached, they wait for a later walk
    chore = Prune(using="default", keep_done=DAY, keep_failed=DAY, page=10)
    assert chore.run_once() == 5
    assert chore.after == 0


def test_two_pruners_at_once_delete_each_job_once():
    ended("done", 2 * DAY, 300)
    kept = ended("done", timedelta(0), 10)
    counts = at_once(lambda: prune(page=20), lambda: prune(page=20))
    # What one has locked the other skips: perhaps a second walk is needed, never a second deletion.
    assert sum(counts) + prune(page=20) == 300
    assert left() == set(kept)


def test_a_pruner_and_workers_at_once_do_not_disturb_each_other():
    ended("done", 2 * DAY, 200)
    new_jobs(100)
    over = threading.Event()

    def work():
        try:
            while batch := leases.claim(worker="A", limit=5):
                for lease in batch:
                    assert outcomes.complete(lease) == "accepted"
        finally:
            over.set()

    def keep_pruning():
        deleted = 0
        while not over.is_set():
            deleted += prune(page=20)
        return deleted + prune(page=20)

    assert at_once(work, keep_pruning)[1] == 200
    assert Job.objects.filter(state="done").count() == 100


def test_rows_of_workers_that_were_not_seen_for_a_day_are_deleted():
    for name, hours in (("dead", 25), ("alive", 1)):
        Worker.objects.create(id=name, host="h", pid=1, concurrency=1)
        Worker.objects.filter(pk=name).update(seen_at=Now() - timedelta(hours=hours))
    prune()
    assert [worker.pk for worker in Worker.objects.all()] == ["alive"]


@pytest.fixture
def lease():
    new_job(max_attempts=3)
    return claim_one("A")


def test_a_rejection_goes_with_its_job_and_stays_without_one():
    pruned, kept, deleted = new_jobs(3)
    held = leases.claim(worker="A", limit=3)
    newer = [reclaimed(lease) for lease in held]
    for lease in held:
        outcomes.complete(lease)
    outcomes.complete(newer[0])
    Job.objects.filter(pk=deleted).delete()
    assert set(Rejection.objects.values_list("job_id", flat=True)) == {pruned, kept, deleted}
    assert Prune(using="default", keep_done=timedelta(0), keep_failed=None).run_once() == 1
    assert set(Rejection.objects.values_list("job_id", flat=True)) == {kept, deleted}

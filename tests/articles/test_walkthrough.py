"""The first article step by step, on this package's table: the claim, the lease, the generation, the refusal.

Its races stand in tests/races; its plans in tests/plans.
"""

from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now

from django_pgqueue import leases, outcomes, upkeep
from django_pgqueue.exceptions import LeaseLost
from django_pgqueue.lab.scenarios.article_sql import GENERATION_CLAIM, GENERATION_COMPLETE
from django_pgqueue.models import Job, Rejection
from django_pgqueue.states import Verdict
from testproject.shop.models import Order, Receipt
from tests.races.tools import (
    backend_pid,
    claim_one,
    expire,
    new_job,
    new_jobs,
    only_rejection,
    reclaimed,
    row,
    session,
)

pytestmark = pytest.mark.django_db(transaction=True)

# The article's two statements on this table: what a consumer in any other language could write.
ARTICLES_CLAIM = GENERATION_CLAIM.replace("lab_article_job", "django_pgqueue_job")
ARTICLES_COMPLETION = GENERATION_COMPLETE.replace("lab_article_job", "django_pgqueue_job")


def database_now():
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]


def test_the_article_s_statements_give_its_own_numbers_on_this_table():
    """2|1, 1|1, then 1|2, then 0 and 1 rows."""
    first, second = new_jobs(2)
    with session("manual-locker") as locker, connection.cursor() as cursor:
        locker.execute("SELECT id FROM django_pgqueue_job WHERE id = %s FOR UPDATE", [first])
        cursor.execute(ARTICLES_CLAIM)
        assert cursor.fetchall() == [(second, 1)]
        locker.rollback()
        cursor.execute(ARTICLES_CLAIM)
        assert cursor.fetchall() == [(first, 1)]
        expire(first)
        cursor.execute(ARTICLES_CLAIM)
        assert cursor.fetchall() == [(first, 2)]
        changed = []
        for generation in (1, 2):
            cursor.execute(ARTICLES_COMPLETION, [first, generation])
            changed.append(cursor.rowcount)
    assert changed == [0, 1]


def test_an_expired_lease_is_reclaimed_as_generation_2_and_only_that_generation_completes():
    job_id = new_job()
    old = claim_one("A")
    assert leases.reclaim(worker="B") == []  # within the lease nobody may

    newer = reclaimed(old)
    assert newer.key == (job_id, 2)
    assert outcomes.complete(old, "old") == Verdict.SUPERSEDED
    assert (row(job_id).state, row(job_id).result) == ("running", None)
    assert outcomes.complete(newer, "new") == Verdict.ACCEPTED
    assert (row(job_id).state, row(job_id).result) == ("done", "new")


def test_a_completion_of_a_generation_changes_0_or_1_rows():
    new_job()
    old = claim_one("A")
    newer = reclaimed(old)
    with transaction.atomic():
        accepted = outcomes.end([outcomes.Ending.done(old), outcomes.Ending.done(newer)], using="default")
    assert list(accepted) == [newer.key]


def test_exactly_one_row_is_changed_for_each_candidate():
    """The join is on a primary key: one claim raises one generation by one, and touches no other row."""
    new_jobs(10)
    for claimed in range(1, 4):
        assert len(leases.claim(worker="A", limit=2)) == 2
        assert Job.objects.filter(state="running", generation=1, attempts=1).count() == claimed * 2
    assert Job.objects.filter(state="ready", generation=0, attempts=0).count() == 4


def test_a_claim_counts_the_generation_stamps_the_lease_and_names_the_worker():
    job_id = new_job()
    before = database_now()
    lease = claim_one("A", lease=timedelta(seconds=45))
    job = row(job_id)
    assert (job.state, job.generation, job.attempts, job.worker_ids) == ("running", 1, 1, ["A"])
    assert before + timedelta(seconds=45) <= job.lease_until <= database_now() + timedelta(seconds=45)
    assert lease.key == (job_id, 1)
    assert lease.claimed_at == job.last_attempted_at == job.started_at


def test_a_lease_written_late_in_a_long_transaction_counts_from_the_clock_not_from_its_start():
    """now() is the transaction's start: a lease of 1 s would be born expired here."""
    new_job()
    duration = timedelta(seconds=1)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT now(), pg_sleep(1.2)")
            started = cursor.fetchone()[0]
        before = database_now()
        lease = claim_one(lease=duration)
        claimed_until = row(lease.job_id).lease_until
        assert claimed_until >= before + duration
        assert claimed_until - started > duration + timedelta(seconds=1)

        before = database_now()
        assert leases.renew([lease]).renewed == {lease.key}
        assert row(lease.job_id).lease_until >= before + duration


def test_an_expiry_during_a_long_transaction_is_seen_in_it():
    """With now() a reclaimer inside a transaction would miss leases that expired after its start."""
    job_id = new_job()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT now()")
        claim_one(lease=timedelta(milliseconds=1))
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(0.01)")
        assert Job.objects.expired().filter(lease_until__gt=Now() - timedelta(seconds=5)).exists()
        (lease,) = leases.reclaim(worker="B")
    assert lease.key == (job_id, 2)


def test_a_late_completion_that_nobody_reclaimed_is_accepted_by_the_token_policy():
    """The second article: the check compares the token, not the clock. It is the only result."""
    new_job()
    lease = claim_one()
    expire(lease.job_id, ago=timedelta(hours=3))
    assert outcomes.complete(lease, "late") == Verdict.ACCEPTED
    assert row(lease.job_id).result == "late"
    assert not Rejection.objects.exists()


def test_a_late_completion_that_nobody_reclaimed_is_refused_by_the_strict_policy_and_the_job_is_reclaimed():
    """The first article's predicate: also lease_until > clock_timestamp()."""
    new_job()
    lease = claim_one()._replace(fencing="strict")
    expire(lease.job_id, ago=timedelta(seconds=5))
    assert outcomes.complete(lease, "late") == Verdict.EXPIRED
    job = row(lease.job_id)
    assert (job.state, job.generation, job.result) == ("running", 1, None)
    rejection = only_rejection(lease.job_id)
    assert (rejection.verdict, rejection.seen_lease_until) == ("expired", job.lease_until)
    assert timedelta(seconds=5) <= rejection.late_by < timedelta(minutes=1)
    assert leases.reclaim(worker="B")[0].generation == 2


def test_a_refused_write_is_never_repeated_with_a_newly_read_generation():
    """However often the old worker asks, it asks as generation 1 and changes nothing."""
    new_job()
    old = claim_one("A")
    reclaimed(old)
    before = row(old.job_id)
    assert [outcomes.complete(old) for _ in range(5)] == [Verdict.SUPERSEDED] * 5
    after = row(old.job_id)
    assert [getattr(before, f.attname) for f in Job._meta.fields] == [
        getattr(after, f.attname) for f in Job._meta.fields
    ]
    assert list(Rejection.objects.values_list("generation", flat=True)) == [1] * 5


def pay_and_complete(lease, order):
    """A job's business write and its completion, as the articles ask: one transaction, left if refused."""
    with transaction.atomic():
        Order.objects.filter(pk=order.pk).update(amount=F("amount") + 1)
        Receipt.objects.create(order=order, job_id=lease.job_id, generation=lease.generation, pdf="x.pdf")
        verdict = outcomes.complete(lease)
        if verdict.is_rejection:
            raise LeaseLost(lease.job_id, lease.generation, verdict)


def test_a_refused_ownership_rolls_the_business_writes_back_and_keeps_its_rejection():
    order = Order.objects.create(number="1", amount=10)
    new_job()
    old = claim_one("A")
    newer = reclaimed(old)
    with pytest.raises(LeaseLost, match="generation 1 no longer owns job"):
        pay_and_complete(old, order)
    order.refresh_from_db()
    assert order.amount == 10
    assert not Receipt.objects.exists()
    rejection = only_rejection(old.job_id)
    assert (rejection.worker, rejection.generation, rejection.current_generation) == ("A", 1, 2)

    pay_and_complete(newer, order)
    order.refresh_from_db()
    assert order.amount == 11
    assert Receipt.objects.get().generation == 2


def test_a_completion_and_its_business_writes_become_visible_in_one_commit():
    order = Order.objects.create(number="1", amount=10)
    job_id = new_job()
    lease = claim_one()
    look = "SELECT (SELECT state FROM django_pgqueue_job WHERE id = %s), (SELECT count(*) FROM shop_receipt)"
    with session() as other:
        other.autocommit = True
        with transaction.atomic():
            pay_and_complete(lease, order)
            assert other.execute(look, [job_id]).fetchone() == ("running", 0)
        assert other.execute(look, [job_id]).fetchone() == ("done", 1)


def test_a_completion_is_gone_with_business_writes_that_fail_at_the_commit():
    """A constraint checked at the commit refuses the transaction: the job is still running, its owner's to fail."""
    job_id = new_job()
    lease = claim_one()
    with pytest.raises(Exception, match="shop_receipt_order_id"), transaction.atomic():
        assert outcomes.complete(lease) == Verdict.ACCEPTED
        Receipt.objects.create(order_id=-1, job_id=job_id, generation=1, pdf="x.pdf")
    assert row(job_id).state == "running"
    assert outcomes.fail(lease, ValueError("no such order")) == Verdict.ACCEPTED


def test_the_work_between_claim_and_completion_needs_no_open_transaction():
    """The claim commits at once and its row lock goes with it; only the lease says that the job is taken.

    Report 69.
    """
    new_job()
    claim_one()
    with session() as other:
        (state,) = other.execute(
            "SELECT state FROM pg_stat_activity WHERE pid = %s", [backend_pid()]
        ).fetchone()
        assert state == "idle"
        assert len(other.execute("SELECT id FROM django_pgqueue_job FOR UPDATE NOWAIT").fetchall()) == 1


def test_a_claim_whose_reply_was_lost_is_found_by_its_worker_and_by_no_other():
    """The first article: do not invent a token after an uncertain commit; the table knows the owner."""
    job_id = new_job()
    claim_one("A")  # the commit succeeded, and A never heard of it
    find = {"known": set(), "lease": timedelta(seconds=30), "using": "default"}
    assert leases.orphans(worker="B", **find) == []
    (found,) = leases.orphans(worker="A", **find)
    assert found.key == (job_id, 1)
    assert leases.orphans(worker="A", **{**find, "known": {found.key}}) == []
    assert outcomes.complete(found) == Verdict.ACCEPTED


def test_a_job_that_kills_every_worker_is_claimed_max_attempts_times_and_not_for_ever():
    """Both articles: cap the claims, and let the exhausted job go somewhere."""
    job_id = new_job(max_attempts=3)
    claim_one("A")
    for generation in (2, 3):
        expire(job_id)
        assert leases.reclaim(worker="B")[0].generation == generation
    expire(job_id)
    assert leases.reclaim(worker="B") == []
    assert [spent.state for spent in upkeep.exhaust()] == ["failed"]
    assert (row(job_id).state, row(job_id).attempts, row(job_id).generation) == ("failed", 3, 3)

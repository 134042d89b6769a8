"""Lock order of batches, and the bounded retry after a deadlock."""

import threading
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.utils import DatabaseError

from django_pgqueue import leases, outcomes, upkeep
from django_pgqueue.faults import retry_conflicts, sqlstate
from django_pgqueue.models import Failure, Job
from django_pgqueue.payloads import render_exception
from django_pgqueue.upkeep import promote
from testproject.shop.models import Order
from tests.races.tools import PATIENCE, at_once, new_jobs

pytestmark = pytest.mark.django_db(transaction=True)


def find_deadlocks_soon():
    """Let the server look for a deadlock after 20 ms of waiting instead of a second; needs a transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL deadlock_timeout = '20ms'")


def test_a_deadlock_between_two_queue_transactions_is_retried_and_each_happens_once():
    """Each fails its own job and then touches the other's row; PostgreSQL ends one of the two. Report 141."""
    new_jobs(2)
    one, two = leases.claim(worker="A", limit=2)
    met, runs = threading.Barrier(2), []

    def fail_own_then_cancel_the_other(own, other):
        def work():
            first_run = own not in runs
            runs.append(own)
            with transaction.atomic():
                find_deadlocks_soon()
                error = render_exception(ValueError("once"))
                outcomes.end([outcomes.Ending.failed(own, error, None)], using="default", wait=True)
                if first_run:
                    met.wait(PATIENCE.total_seconds())
                return outcomes.cancel(other.job_id)

        return retry_conflicts(work)

    replies = at_once(
        lambda: fail_own_then_cancel_the_other(one, two), lambda: fail_own_then_cancel_the_other(two, one)
    )
    assert len(runs) == 3
    assert Failure.objects.count() == 2
    # The victim's retry found the other's cancellation of its job committed; no answer contradicts a row.
    assert sorted(reply.message for reply in replies) == [
        "cancellation requested",
        "the job has already ended as failed",
    ]
    assert Job.objects.filter(state="failed").count() == 2


def test_a_deadlock_with_business_rows_ends_one_and_its_retry_commits_both_writes_together():
    """The first article: locks on business tables may deadlock even when the claim is right; retry, bounded."""
    new_jobs(2)
    one, two = leases.claim(worker="A", limit=2)
    orders = [Order.objects.create(number=str(number), amount=1) for number in range(2)]
    met, runs = threading.Barrier(2), []

    def update_orders_then_complete(lease, first, second):
        def work():
            first_run = lease not in runs
            runs.append(lease)
            with transaction.atomic():
                find_deadlocks_soon()
                for order, wait in ((first, True), (second, False)):
                    changed = Order.objects.select_for_update().get(pk=order.pk)
                    changed.customer += f"{lease.job_id} "
                    changed.save()
                    if first_run and wait:
                        met.wait(PATIENCE.total_seconds())
                return outcomes.complete(lease)

        return retry_conflicts(work)

    verdicts = at_once(
        lambda: update_orders_then_complete(one, orders[0], orders[1]),
        lambda: update_orders_then_complete(two, orders[1], orders[0]),
    )
    assert verdicts == ["accepted", "accepted"]
    assert len(runs) == 3
    for order in Order.objects.all():
        assert sorted(order.customer.split()) == sorted(str(lease.job_id) for lease in (one, two))


def test_batches_in_opposite_orders_do_not_deadlock():
    """Both sort by id. Fifty rounds of two waiting batches over the same thirty rows. Report 141."""
    new_jobs(30)
    held = leases.claim(worker="A", limit=30)

    def renew_and_release(batch):
        def work():
            for _ in range(50):
                leases.renew(batch)
                with transaction.atomic():
                    find_deadlocks_soon()
                    outcomes.end([outcomes.Ending.done(item) for item in batch], using="default", wait=True)
                    transaction.set_rollback(True)

        return work

    at_once(renew_and_release(held), renew_and_release(held[::-1]))


def test_claims_promotions_reclaims_exhaustions_and_operators_at_once_never_deadlock():
    """Five kinds of writers over the same 300 rows; none is ended by the server. Reports 128 and 141."""
    job_ids = new_jobs(300, max_attempts=3)
    errors = []

    def guarded(work):
        def run():
            for number in range(40):
                try:
                    work(number)
                except DatabaseError as error:
                    errors.append(sqlstate(error))

        return run

    def claim_and_forget(number):
        leases.claim(worker="A", limit=30, lease=timedelta(milliseconds=1))

    def claim_and_fail(number):
        for item in leases.claim(worker="B", limit=5):
            outcomes.fail(item, ValueError(), delay=timedelta(milliseconds=1))

    def operate(number):
        promote(limit=50)
        for job_id in job_ids[number::40]:
            outcomes.cancel(job_id)
            outcomes.retry(job_id)

    at_once(
        guarded(claim_and_forget),
        guarded(claim_and_fail),
        guarded(lambda number: leases.reclaim(worker="C", limit=20)),
        guarded(lambda number: upkeep.exhaust(limit=50)),
        guarded(operate),
    )
    assert errors == []

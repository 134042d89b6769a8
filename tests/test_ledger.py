"""A ledger that refuses its rows."""

from __future__ import annotations

import pytest
from django.db import connection

from django_pgqueue import leases, outcomes
from django_pgqueue.models import Job, Rejection

pytestmark = pytest.mark.django_db(transaction=True)

BODIES = {"raises": "RAISE EXCEPTION 'the ledger is full';", "returns nothing": "RETURN NULL;"}


@pytest.fixture(params=BODIES)
def broken_ledger(request):
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse_row() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN {BODIES[request.param]} END $$"
        )
        cursor.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON django_pgqueue_rejection"
            " FOR EACH ROW EXECUTE FUNCTION refuse_row()"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION refuse_row CASCADE")


@pytest.mark.usefixtures("broken_ledger")
def test_a_refusal_that_cannot_be_recorded_is_still_a_refusal_and_is_logged(caplog):
    Job.objects.create(task="shop.tasks.send")
    (first,) = leases.claim(worker="A")
    Job.objects.update(lease_until="2020-01-01T00:00:00Z")
    (second,) = leases.reclaim(worker="B")
    assert outcomes.complete(first) == "superseded"
    assert leases.renew([first]).lost[0].verdict == "superseded"
    assert outcomes.complete(second) == "accepted"
    assert not Rejection.objects.exists()
    assert [record.event for record in caplog.records].count("unrecorded") == 2

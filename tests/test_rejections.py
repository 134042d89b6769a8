"""Refused writes as people meet them: a signal, one line in the log, how late it was, and how long it is kept."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from django_pgqueue import LeaseLost, leases, outcomes, task
from django_pgqueue.lab.waiting import until
from django_pgqueue.models import Job, Rejection
from django_pgqueue.signals import completion_rejected, lease_lost
from django_pgqueue.states import Verdict
from tests.context.holding import MOVES, beating, context_of, holding_of
from tests.outcomes.writes import WRITES as PLAIN_WRITES
from tests.outcomes.writes import (
    complete,
    every_write,
    release,
    spend,
)
from tests.races.tools import (
    PATIENCE,
    claim_one,
    expire,
    new_job,
    only_rejection,
    reclaimed,
    row,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def told() -> Iterator[list[dict[str, Any]]]:
    """Note what receivers of `completion_rejected` are told."""
    notes: list[dict[str, Any]] = []

    def receive(**given: Any) -> None:
        del given["signal"]
        notes.append(given)

    completion_rejected.connect(receive)
    yield notes
    completion_rejected.disconnect(receive)


def fence(lease):
    with pytest.raises(LeaseLost), context_of(lease).fence():
        pass


def complete_in_a_block(lease):
    with pytest.raises(LeaseLost), context_of(lease).complete():
        pass


def effect(lease):
    with pytest.raises(LeaseLost):
        context_of(lease).once("mail", lambda: "sent")


WRITES = {
    "complete": (outcomes.complete, "complete"),
    "complete()": (complete_in_a_block, "complete"),
    "fail": (lambda lease: outcomes.fail(lease, ValueError("hunter2")), "fail"),
    "release": (outcomes.release, "release"),
    "fence()": (fence, "fence"),
    "once()": (effect, "effect"),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("move", ["reclaimed", "spent", "deleted"])
def test_receivers_are_told_who_wrote_what_against_which_generation(write, move, lease, told):
    moved, verdict = MOVES[move]
    moved(lease)
    send, action = WRITES[write]
    send(lease)
    rejection = Rejection.objects.get()
    assert told == [
        {
            "sender": Rejection,
            "job_id": lease.job_id,
            "generation": 1,
            "current_generation": {"reclaimed": 2, "spent": 1, "deleted": None}[move],
            "action": action,
            "verdict": verdict,
            "worker": "A",
            "late_by": rejection.late_by,
        }
    ]
    assert (rejection.action, rejection.verdict, rejection.worker) == (action, verdict, "A")


@pytest.mark.parametrize("write", WRITES)
def test_the_log_has_one_warning_line_without_a_traceback_or_a_payload(write, lease, caplog):
    Job.objects.update(payload={"args": ["hunter2"], "kwargs": {}})
    reclaimed(lease)
    with caplog.at_level(logging.DEBUG, "django_pgqueue"):
        WRITES[write][0](lease)
    (record,) = [item for item in caplog.records if item.name.startswith("django_pgqueue")]
    assert (record.levelname, record.exc_info, record.stack_info) == ("WARNING", None, None)
    assert (record.event, record.job_id, record.generation, record.worker) == (
        "rejected",
        lease.job_id,
        1,
        "A",
    )
    text = record.getMessage()
    assert "\n" not in text
    assert "hunter2" not in caplog.text
    assert all(part in text for part in (f"Job {lease.job_id}", "generation 1", "superseded", "generation 2"))


def test_a_receiver_that_raises_or_breaks_its_connection_changes_nothing(lease, told, caplog):
    from django.db import connection

    def breaks(**given):
        connection.close()
        raise RuntimeError("a receiver's own fault")

    completion_rejected.connect(breaks)
    try:
        reclaimed(lease)
        assert outcomes.complete(lease) == "superseded"
        with transaction.atomic():
            pass
    finally:
        completion_rejected.disconnect(breaks)
    assert len(told) == 1
    assert Rejection.objects.count() == 1


def test_receivers_are_told_when_the_record_is_there_for_all_to_see(lease):
    """Also where the refused writer's own transaction rolls back afterwards."""
    seen = []

    def receive(job_id, **given):
        from tests.races.tools import InThread

        seen.append(InThread(lambda: Rejection.objects.filter(job_id=job_id).count()).result())

    completion_rejected.connect(receive)
    try:
        reclaimed(lease)
        with pytest.raises(LeaseLost), transaction.atomic(), context_of(lease).fence():
            pass
    finally:
        completion_rejected.disconnect(receive)
    assert seen == [1]


def test_a_refused_heartbeat_is_a_lost_lease_and_told_as_that_once(lease, told, caplog):
    lost = []

    def receive(**given):
        lost.append((given["sender"], given["job_id"], given["generation"], given["worker"]))

    lease_lost.connect(receive)
    holding = holding_of(lease)
    try:
        reclaimed(lease)
        with caplog.at_level(logging.DEBUG, "django_pgqueue"), beating(holding):
            until(lambda: holding.trust.lost, "the heartbeat has learned of it", within=PATIENCE)
            until(lambda: lost, "receivers were told", within=PATIENCE)
    finally:
        lease_lost.disconnect(receive)
    assert lost == [(Job, lease.job_id, 1, "A")]
    assert told == []
    assert [item.event for item in caplog.records if item.name == "django_pgqueue"] == ["lease_lost"]
    assert [(item.action, item.verdict) for item in Rejection.objects.all()] == [("renew", "superseded")]


# How late


def set_back(job_id: int, column: str, ago: timedelta) -> None:
    from django.db.models.functions import Now

    Job.objects.filter(pk=job_id).update(**{column: Now() - ago})


@pytest.mark.parametrize(
    ("move", "column"),
    [("reclaimed", "last_attempted_at"), ("spent", "finished_at"), ("cancelled", "finished_at")],
)
def test_late_by_is_the_time_since_the_loss(move, column, lease):
    MOVES[move][0](lease)
    set_back(lease.job_id, column, timedelta(minutes=7))
    outcomes.complete(lease)
    assert timedelta(minutes=7) <= Rejection.objects.get().late_by < timedelta(minutes=8)


def test_late_by_of_an_expired_lease_counts_from_its_end(lease):
    expire(lease.job_id, ago=timedelta(minutes=7))
    outcomes.complete(lease._replace(fencing="strict"))
    rejection = Rejection.objects.get()
    assert timedelta(minutes=7) <= rejection.late_by < timedelta(minutes=8)
    assert rejection.seen_lease_until == row(lease.job_id).lease_until


@pytest.mark.parametrize("move", ["released", "deleted"])
def test_late_by_is_empty_where_the_row_does_not_tell(move, lease):
    MOVES[move][0](lease)
    outcomes.complete(lease)
    assert Rejection.objects.get().late_by is None


def test_late_by_is_never_negative(lease):
    reclaimed(lease)
    set_back(lease.job_id, "last_attempted_at", timedelta(minutes=-5))
    outcomes.complete(lease)
    assert Rejection.objects.get().late_by == timedelta(0)


def test_a_rejection_says_how_long_after_the_loss_the_write_came(lease):
    newer = reclaimed(lease)
    Job.objects.filter(pk=lease.job_id).update(last_attempted_at=newer.claimed_at - timedelta(minutes=7))
    complete(lease)
    assert timedelta(minutes=7) <= only_rejection(lease.job_id).late_by < timedelta(minutes=8)


def test_the_lateness_after_an_end_counts_from_the_end_and_after_a_release_is_unknown(lease):
    spend(lease)
    Job.objects.update(finished_at=row(lease.job_id).finished_at - timedelta(minutes=9))
    complete(lease)
    assert timedelta(minutes=9) <= only_rejection(lease.job_id).late_by < timedelta(minutes=10)

    new_job()
    other = claim_one()
    release(other)
    complete(other)
    assert only_rejection(other.job_id).late_by is None


@every_write
def test_a_rejection_survives_the_rollback_of_the_caller_s_transaction(action, lease):
    reclaimed(lease)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        assert PLAIN_WRITES[action](lease) == Verdict.SUPERSEDED
        raise ZeroDivisionError
    assert only_rejection(lease.job_id).action == action


def test_a_rejection_is_written_with_autocommit_off_too(lease):
    reclaimed(lease)
    transaction.set_autocommit(False)
    try:
        assert complete(lease) == Verdict.SUPERSEDED
        transaction.rollback()
    finally:
        transaction.set_autocommit(True)
    assert only_rejection(lease.job_id).action == "complete"


def test_a_refused_write_leaves_the_caller_s_transaction_usable_and_on_its_own_connection(lease):
    reclaimed(lease)
    mine = connection.connection
    with transaction.atomic():
        complete(lease)
        assert connection.connection is mine
        job_id = new_job()
    assert row(job_id).state == "ready"


def test_a_refusal_is_told_once_to_receivers_and_to_the_log_without_a_payload(lease, caplog):
    """The log knows the job by its number only, and a receiver that raises changes nothing.

    Reports 127 and 138.
    """
    Job.objects.update(payload={"args": ["hunter2-marker"], "kwargs": {}})
    told = []

    def raises(sender, **given):
        raise RuntimeError("a receiver's own fault")

    def listens(sender, **given):
        told.append((sender, given))

    reclaimed(lease)
    completion_rejected.connect(raises)
    completion_rejected.connect(listens)
    try:
        with caplog.at_level(logging.WARNING, "django_pgqueue"):
            assert complete(lease) == Verdict.SUPERSEDED
    finally:
        completion_rejected.disconnect(raises)
        completion_rejected.disconnect(listens)

    ((sender, given),) = told
    rejection = only_rejection(lease.job_id)
    assert sender is Rejection
    assert given.pop("late_by") == rejection.late_by
    del given["signal"]
    assert given == {
        "job_id": lease.job_id,
        "generation": 1,
        "current_generation": 2,
        "action": "complete",
        "verdict": "superseded",
        "worker": "A",
    }
    (record,) = [item for item in caplog.records if item.name == "django_pgqueue"]
    assert (record.event, record.job_id, record.generation) == ("rejected", lease.job_id, 1)
    assert "hunter2" not in caplog.text


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


@task
def nothing() -> None:
    """Do nothing."""


@pytest.mark.django_db(transaction=True)
def test_a_rolled_back_caller_leaves_a_refusal_on_record() -> None:
    """The ledger is written in a transaction of its own. Report 27."""
    nothing.enqueue()
    first = claim_one()
    Job.objects.update(lease_until="2020-01-01T00:00:00Z")
    leases.reclaim(worker="B")
    with transaction.atomic():
        assert outcomes.complete(first) == "superseded"
        transaction.set_rollback(True)
    assert Rejection.objects.get().action == "complete"

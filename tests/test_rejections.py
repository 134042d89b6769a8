"""Refused writes as people meet them: a signal, one line in the log, how late it was, and how long it is kept."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from django_pgqueue import LeaseLost, leases, outcomes
from django_pgqueue.lab.waiting import until
from django_pgqueue.models import Job, Rejection
from django_pgqueue.signals import completion_rejected, lease_lost
from django_pgqueue.upkeep import Prune
from tests.context.holding import MOVES, beating, context_of, holding_of
from tests.races.tools import PATIENCE, claim_one, expire, new_job, new_jobs, reclaimed, row

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lease():
    new_job(max_attempts=3)
    return claim_one("A")


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
            until(lambda: holding.lost, "the heartbeat has learned of it", within=PATIENCE)
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


# How long it is kept


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

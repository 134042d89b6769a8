"""What each write of a worker is told: accepted, already accepted, or why it was refused."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import OperationalError

from django_pgqueue import leases, outcomes
from django_pgqueue.models import Failure, Job, Rejection
from django_pgqueue.states import Verdict
from tests.context.holding import bad_line
from tests.outcomes.writes import (
    ENDINGS,
    MOVES,
    WRITES,
    complete,
    every_write,
    release,
    renew,
)
from tests.races.tools import (
    claim_one,
    end_batch,
    expire,
    new_job,
    new_jobs,
    only_rejection,
    reclaimed,
    row,
)

pytestmark = pytest.mark.django_db(transaction=True)


@every_write
def test_the_owner_s_write_is_accepted_and_leaves_no_rejection(action, lease):
    assert WRITES[action](lease) == Verdict.ACCEPTED
    assert not Rejection.objects.exists()


@every_write
@pytest.mark.parametrize("move", MOVES)
def test_a_write_for_a_job_that_has_moved_on_is_refused_and_changes_nothing(action, move, lease):
    """Every worker-side write with an old generation. Reports 15, 27 and 38."""
    moved, verdict, state = MOVES[move]
    moved(lease)
    before = list(Job.objects.values()), list(Failure.objects.values())

    assert WRITES[action](lease) == verdict
    assert (list(Job.objects.values()), list(Failure.objects.values())) == before
    rejection = only_rejection(lease.job_id)
    assert (rejection.action, rejection.verdict, rejection.seen_state) == (action, verdict, state)
    assert (rejection.worker, rejection.generation) == ("A", 1)
    current = Job.objects.filter(pk=lease.job_id).values_list("generation", flat=True).first()
    assert rejection.current_generation == current


@every_write
def test_an_expired_lease_that_nobody_reclaimed_is_refused_under_strict_fencing_only(action, lease):
    strict = lease._replace(fencing="strict")
    assert renew(strict) == Verdict.ACCEPTED
    expire(lease.job_id, ago=timedelta(minutes=1))
    assert WRITES[action](strict) == Verdict.EXPIRED
    assert row(lease.job_id).state == "running"
    rejection = only_rejection(lease.job_id)
    assert (rejection.action, rejection.verdict) == (action, "expired")
    assert rejection.seen_lease_until == row(lease.job_id).lease_until
    assert timedelta(minutes=1) <= rejection.late_by < timedelta(minutes=2)

    assert WRITES[action](lease) == Verdict.ACCEPTED


SAME = [("complete", "complete"), ("release", "release"), ("release", "snooze"), ("snooze", "release")]
SAME += [("snooze", "snooze"), ("fail", "fail"), ("fail", "fail_and_retry"), ("fail_and_retry", "fail")]
SAME += [("fail_and_retry", "fail_and_retry")]


@pytest.mark.parametrize(("first", "second"), [(first, second) for first in ENDINGS for second in ENDINGS])
def test_a_second_ending_of_one_generation_is_already_accepted_if_it_is_the_same_and_else_refused(
    first, second, lease
):
    """The reply of an earlier commit may have been lost: asking again is answered, and records no refusal."""
    assert ENDINGS[first](lease) == Verdict.ACCEPTED
    before = list(Job.objects.values()), list(Failure.objects.values())
    same = (first, second) in SAME
    assert ENDINGS[second](lease) == (Verdict.ALREADY_ACCEPTED if same else Verdict.NOT_RUNNING)
    assert (list(Job.objects.values()), list(Failure.objects.values())) == before
    assert Rejection.objects.count() == (0 if same else 1)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_renewal_after_the_own_ending_is_not_running(ending, lease):
    ENDINGS[ending](lease)
    assert renew(lease) == Verdict.NOT_RUNNING
    assert only_rejection(lease.job_id).action == "renew"


def test_a_claim_that_was_never_committed_owns_nothing(lease):
    """A worker that believes in a rolled-back claim of a later generation is refused."""
    never = lease._replace(generation=2)
    assert outcomes.complete(never) == Verdict.NOT_RUNNING
    rejection = only_rejection(lease.job_id)
    assert (rejection.generation, rejection.current_generation, rejection.late_by) == (2, 1, None)
    assert complete(lease) == Verdict.ACCEPTED


def test_a_batch_gives_each_its_own_verdict():
    """One statement for accepted, repeated, superseded, expired, ended and deleted jobs alike.

    Reports 76 and 141.
    """
    ids = new_jobs(6)
    held = dict(zip(ids, leases.claim(worker="A", limit=6), strict=True))
    good, twice, moved, late, ended, gone = (held[job_id] for job_id in ids)
    complete(twice)
    reclaimed(moved)
    late = late._replace(fencing="strict")
    expire(late.job_id)
    release(ended)
    row(gone.job_id).delete()

    asked = [outcomes.Ending.done(item) for item in (gone, ended, late, moved, twice, good)]
    replies = {reply.ending.lease.job_id: str(reply.verdict) for reply in end_batch(asked)}
    assert [replies[job_id] for job_id in ids] == [
        "accepted",
        "already_accepted",
        "superseded",
        "expired",
        "not_running",
        "missing",
    ]
    assert Rejection.objects.count() == 4


SENT = {
    "complete": (lambda lease: outcomes.complete(lease, 1), "done"),
    "fail": (lambda lease: outcomes.fail(lease, ValueError()), "failed"),
    "fail and retry": (lambda lease: outcomes.fail(lease, ValueError(), delay=timedelta(0)), "ready"),
    "release": (outcomes.release, "ready"),
    "snooze": (lambda lease: outcomes.release(lease, delay=timedelta(hours=1)), "scheduled"),
}


@pytest.mark.parametrize("at", ["reply", "request"])
@pytest.mark.parametrize("write", SENT)
def test_a_write_that_is_sent_again_gets_the_verdict_of_the_first(write: str, at: str) -> None:
    job_id = new_job()
    lease = claim_one("A")
    send, state = SENT[write]
    with bad_line(at=at), pytest.raises(OperationalError):
        send(lease)
    assert row(job_id).state == (state if at == "reply" else "running")
    assert send(lease) == (Verdict.ALREADY_ACCEPTED if at == "reply" else Verdict.ACCEPTED)
    assert (row(job_id).state, row(job_id).generation) == (state, 1)
    assert Failure.objects.count() == ("fail" in write)
    assert not Rejection.objects.exists()


@pytest.mark.parametrize("write", ["fail and retry", "release"])
def test_an_ending_that_went_through_is_still_already_accepted_when_the_job_has_been_claimed_again(
    write: str,
) -> None:
    """The next claim may come before the worker can ask; the ledger must not accuse it of being stale."""
    job_id = new_job()
    lease = claim_one("A")
    send, _ = SENT[write]
    assert send(lease) == Verdict.ACCEPTED
    newer = claim_one("B")
    assert newer.generation == 2
    assert send(lease) == Verdict.ALREADY_ACCEPTED
    assert row(job_id).generation == 2
    assert not Rejection.objects.exists()
    assert outcomes.complete(lease) == Verdict.SUPERSEDED  # another write is another matter
    assert outcomes.complete(newer) == Verdict.ACCEPTED


@pytest.mark.parametrize("write", SENT)
def test_a_generation_whose_lease_ran_out_gets_no_credit_for_that(write: str) -> None:
    new_job()
    lease = claim_one("A")
    reclaimed(lease)
    send, _ = SENT[write]
    assert send(lease) == Verdict.SUPERSEDED
    assert Rejection.objects.count() == 1

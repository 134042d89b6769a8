"""What workers write about their jobs, and how a job moves on under them."""

from datetime import timedelta

import pytest

from django_pgqueue import leases, outcomes, upkeep
from django_pgqueue.models import Job
from django_pgqueue.states import Verdict
from tests.races.tools import (
    expire,
    reclaimed,
    row,
)

SECOND = timedelta(seconds=1)


def complete(lease):
    return outcomes.complete(lease, "result")


def fail(lease):
    return outcomes.fail(lease, ValueError("wrong"))


def fail_and_retry(lease):
    return outcomes.fail(lease, ValueError("wrong"), delay=SECOND)


def release(lease):
    return outcomes.release(lease)


def snooze(lease):
    return outcomes.release(lease, delay=SECOND)


def renew(lease):
    reply = leases.renew([lease])
    if reply.renewed:
        return Verdict.ACCEPTED
    (refused,) = reply.lost
    return refused.verdict


WRITES = {"complete": complete, "fail": fail, "release": release, "renew": renew}
every_write = pytest.mark.parametrize("action", WRITES)


def spend(lease):
    """Let the lease of a last attempt run out and the job end of it."""
    Job.objects.filter(pk=lease.job_id).update(max_attempts=lease.attempt)
    expire(lease.job_id)
    (spent,) = upkeep.exhaust()
    return spent


# How a job moves on under its old worker, and what each of that worker's writes gets then.
MOVES = {
    "reclaimed": (lambda lease: reclaimed(lease), "superseded", "running"),
    "reclaimed and done": (lambda lease: complete(reclaimed(lease)), "superseded", "done"),
    "reclaimed and failed": (lambda lease: fail(reclaimed(lease)), "superseded", "failed"),
    "reclaimed and released": (lambda lease: release(reclaimed(lease)), "superseded", "ready"),
    "exhausted": (spend, "not_running", "failed"),
    "deleted": (lambda lease: row(lease.job_id).delete(), "missing", ""),
}

ENDINGS = {
    "complete": complete,
    "fail": fail,
    "fail_and_retry": fail_and_retry,
    "release": release,
    "snooze": snooze,
}

"""Lines of the log: whom they are about, and what they never say."""

from __future__ import annotations

import pytest

from django_pgqueue import leases
from django_pgqueue.log import about
from django_pgqueue.outcomes import Spent
from tests.races.tools import new_job


@pytest.mark.django_db
def test_a_line_names_the_job_its_claim_and_its_worker_and_never_the_arguments() -> None:
    job = new_job()
    (lease,) = leases.claim(worker="me")
    assert about("claimed", lease) == {
        "event": "claimed", "job_id": job, "generation": 1, "task": lease.task, "queue": lease.queue, "worker": "me",
    }  # fmt: skip


def test_a_line_says_what_is_known_and_no_more() -> None:
    spent = Spent(job_id=1, generation=2, state="failed", task="t", queue="q", backend="b")
    assert about("exhausted", spent) == {
        "event": "exhausted",
        "job_id": 1,
        "generation": 2,
        "task": "t",
        "queue": "q",
    }
    assert about("outage") == {"event": "outage"}

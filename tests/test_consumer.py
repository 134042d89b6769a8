"""A consumer of one's own: the public names are enough, and each ending says what became of it."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from django_pgqueue import consumer
from django_pgqueue.models import Failure, Job, Rejection
from tests.races.tools import expire, new_job, new_jobs

README = (Path(__file__).parents[1] / "README.md").read_text()
pytestmark = pytest.mark.django_db(transaction=True)


def test_every_verdict_of_a_job_that_is_claimed_renewed_released_failed_and_done() -> None:
    job = new_job()
    (first,) = consumer.claim(worker="mine")
    assert consumer.renew([first]).renewed == {first.key}
    assert consumer.release(first) == "accepted"
    (second,) = consumer.claim(worker="mine")
    assert consumer.fail(second, ValueError("no"), delay=timedelta(0)) == "accepted"
    (third,) = consumer.claim(worker="mine")
    assert (third.generation, third.attempt) == (3, 2)
    assert consumer.complete(third, {"mail": 1}) == "accepted"
    assert consumer.complete(third, {"mail": 1}) == "already_accepted"
    assert Job.objects.values_list("state", "result").get(pk=job) == ("done", {"mail": 1})
    assert Failure.objects.get().generation == 2
    assert not Rejection.objects.exists()


def test_a_job_given_back_with_a_delay_waits_for_its_time() -> None:
    new_job()
    (lease,) = consumer.claim(worker="mine")
    assert consumer.release(lease, delay=timedelta(hours=1)) == "accepted"
    job = Job.objects.get()
    assert (job.state, job.attempts, job.generation) == ("scheduled", 0, 1)
    assert consumer.claim(worker="mine") == []


def test_the_late_ending_of_a_consumer_that_was_replaced_is_refused_and_kept() -> None:
    job = new_job()
    (late,) = consumer.claim(worker="late")
    expire(job)
    (owner,) = consumer.reclaim(worker="owner")
    assert consumer.complete(late) == "superseded"
    assert consumer.complete(owner) == "accepted"
    assert Rejection.objects.values_list("worker", "verdict").get() == ("late", "superseded")


def test_the_readmes_consumer_ends_every_job_and_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(
        r"```python\n(from datetime import timedelta\nfrom django_pgqueue\.consumer.*?)```", README, re.S
    )
    jobs = new_jobs(3)
    Job.objects.filter(pk=jobs[2]).update(max_attempts=1)

    def run(task: str, *args: object) -> None:
        if calls.append(task) or len(calls) > 1:
            raise ValueError("no")

    calls: list[str] = []
    exec(compile(code, "README", "exec"), {"run": run})
    states = dict(Job.objects.values_list("pk", "state"))
    assert [states[job] for job in jobs] == ["done", "scheduled", "failed"]
    assert capsys.readouterr().out.split() == [word for job in jobs for word in (str(job), "accepted")]

"""What happened to one job, in order."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.test import Client
from django.utils import timezone

from django_pgqueue.models import Failure, Job, Rejection

BASE = "/admin/django_pgqueue/"
JOBS = f"{BASE}job/"
MakeJob = Callable[..., Job]


def events(page: Any) -> list[str]:
    """Return the timeline's entries without their times."""
    return [event.title for event in page.context["events"]]


def test_the_timeline_tells_the_story_of_a_late_worker(boss: Client, make_job: MakeJob) -> None:
    start = timezone.now() - timedelta(minutes=10)

    def after(seconds: float) -> Any:
        return start + timedelta(seconds=seconds)

    job = make_job(
        "done",
        enqueued_at=start,
        run_after=start,
        started_at=after(1),
        last_attempted_at=after(65),
        finished_at=after(70),
        generation=3,
        attempts=3,
        worker_ids=["box-1:1", "box-2:2", "box-3:3"],
    )
    Failure.objects.create(
        job=job,
        generation=1,
        kind="error",
        worker="box-1:1",
        at=after(5),
        exception_class="builtins.ValueError",
        message="no such order",
        traceback="Traceback (most recent call last): ...",
    )
    Failure.objects.create(job=job, generation=2, kind="lease_expired", worker="box-2:2", at=after(65))
    Rejection.objects.create(
        job_id=job.pk,
        generation=2,
        current_generation=3,
        action="complete",
        verdict="superseded",
        worker="box-2:2",
        at=after(265),
        late_by=timedelta(seconds=200),
    )
    page = boss.get(f"{JOBS}{job.pk}/change/")
    assert events(page) == [
        "Enqueued",
        "Claimed as generation 1",
        "Attempt of generation 1 failed: error",
        "Claimed as generation 2",
        "Attempt of generation 2 failed: lease expired",
        "Claimed as generation 3",
        "Ended as done",
        "Refused: complete by generation 2, superseded",
    ]
    html = page.content.decode()
    assert "the job was at generation 3, 3 min 20 s too late" in html
    assert "builtins.ValueError: no such order" in html
    assert re.search(r"<details><summary>Traceback</summary><pre[^>]*>Traceback \(most recent", html)
    assert html.count("time not recorded") == 1  # of the claim as generation 2; a retry leaves no time


def test_a_reclaim_has_the_time_of_the_lost_lease(boss: Client, make_job: MakeJob) -> None:
    now = timezone.now()
    job = make_job("running", generation=3, attempts=3, worker_ids=["a", "b", "c"], last_attempted_at=now)
    at = now - timedelta(seconds=60)
    Failure.objects.create(job=job, generation=1, kind="lease_expired", at=at)
    page = boss.get(f"{JOBS}{job.pk}/change/")
    (claim,) = [event for event in page.context["events"] if event.title == "Claimed as generation 2"]
    assert claim.at == at

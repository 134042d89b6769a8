"""Rejected completions, counted and linked."""

import re
from collections.abc import Callable
from datetime import timedelta

from django.test import Client
from django.utils import timezone

from django_pgqueue.models import Job, Rejection
from tests.admin.reading import cells, text_of

BASE = "/admin/django_pgqueue/"
JOBS = f"{BASE}job/"
MakeJob = Callable[..., Job]


def test_rejected_completions_are_counted_and_linked(boss: Client, make_job: MakeJob) -> None:
    job, other = make_job("done"), make_job("done")
    for action in ("complete", "fail", "renew", "fence"):
        Rejection.objects.create(
            job_id=job.pk, generation=1, action=action, verdict="superseded", worker=action
        )
    Rejection.objects.create(
        job_id=other.pk, generation=1, action="complete", verdict="superseded", worker="other"
    )
    page = boss.get(JOBS)
    assert cells(page, job)["refused_endings"] == "2"
    assert "3 rejected completions in the last 24 hours" in text_of(page)
    link = re.search(rf'class="pgqueue-count" href="([^"]+job={job.pk}[^"]*)"', page.content.decode())
    assert link is not None
    listed = boss.get(link[1].replace("&amp;", "&"))
    assert {row.worker for row in listed.context["cl"].result_list} == {"complete", "fail"}


def test_old_rejections_are_not_counted_as_recent(boss: Client, make_job: MakeJob) -> None:
    Rejection.objects.create(
        job_id=1,
        generation=1,
        action="complete",
        verdict="superseded",
        at=timezone.now() - timedelta(hours=25),
    )
    assert "0 rejected completions in the last 24 hours" in text_of(boss.get(JOBS))

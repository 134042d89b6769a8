"""Deleting jobs: it really deletes, in batches, and says what it left."""

import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.test import Client

from django_pgqueue.models import Failure, Job, Rejection

JOBS = "/admin/django_pgqueue/job/"
MakeJob = Callable[..., Job]
RunAction = Callable[..., list[str]]


def test_one_job_is_deleted_with_its_failures_and_keeps_its_rejections(
    boss: Client, make_job: MakeJob
) -> None:
    """Report 113."""
    job, other = make_job("failed"), make_job("failed")
    Failure.objects.bulk_create(Failure(job=job, generation=n, kind="error") for n in range(1_200))
    Failure.objects.create(job=other, generation=1, kind="error")
    Rejection.objects.create(job_id=job.pk, generation=1, action="complete", verdict="superseded")
    page = boss.get(f"{JOBS}{job.pk}/delete/").content.decode()
    assert "1000+ failures" in page
    assert len(page) < 30_000
    boss.post(f"{JOBS}{job.pk}/delete/", {"post": "yes"})
    assert list(Job.objects.all()) == [other]
    assert Failure.objects.count() == 1
    assert Rejection.objects.count() == 1


def test_deleting_a_running_job_is_allowed_and_says_what_it_means(boss: Client, make_job: MakeJob) -> None:
    job = make_job("running")
    assert "1 job is running: its worker" in boss.get(f"{JOBS}{job.pk}/delete/").content.decode()
    data = {"action": "delete_selected", "index": "0", "_selected_action": str(job.pk)}
    assert "1 job is running: its worker" in boss.post(JOBS, data).content.decode()
    assert Job.objects.count() == 1
    boss.post(f"{JOBS}{job.pk}/delete/", {"post": "yes"})
    assert Job.objects.count() == 0


@pytest.mark.django_db(transaction=True)
def test_five_thousand_selected_across_pages_are_asked_for_once_and_deleted(
    boss: Client, many_jobs: Callable[..., None], make_job: MakeJob, run_action: RunAction
) -> None:
    """Reports 109 and 113."""
    many_jobs(5_000)
    kept = make_job("done")
    Failure.objects.bulk_create(
        Failure(job_id=pk, generation=1, kind="error")
        for pk in Job.objects.filter(state="failed").values_list("pk", flat=True)[:2_000]
    )
    ticked = list(Job.objects.filter(state="failed").order_by("-pk")[:50])
    address = f"{JOBS}?state=failed"
    data: dict[str, Any] = {
        "action": "delete_selected",
        "index": "0",
        "select_across": "1",
        "_selected_action": [str(job.pk) for job in ticked],
    }
    page = boss.post(address, data)
    text = page.content.decode()
    assert "delete 5000 jobs with their failures" in text
    assert text.count('name="_selected_action"') == 1
    assert len(text) < 30_000
    started = time.monotonic()
    confirmed = {
        "action": "delete_selected",
        "post": "yes",
        "select_across": "1",
        "_selected_action": page.context["ticked"],
    }
    response = boss.post(address, confirmed, follow=True)
    assert time.monotonic() - started < 20
    assert [str(message) for message in response.context["messages"]] == ["5000 jobs deleted."]
    assert list(Job.objects.all()) == [kept]
    assert Failure.objects.count() == 0


@pytest.mark.django_db(transaction=True)
def test_a_row_that_a_running_job_holds_is_left_and_reported(
    boss: Client, make_job: MakeJob, run_action: RunAction
) -> None:
    held, free = make_job("running"), make_job("running")
    with psycopg.connect(**connection.get_connection_params()) as session:
        session.execute("SELECT FROM django_pgqueue_job WHERE id = %s FOR UPDATE", [held.pk])
        assert run_action(boss, "delete_selected", held, free, post="yes") == [
            "1 job deleted.",
            "1 job not deleted: in use by its worker; try again.",
        ]
        response = boss.post(f"{JOBS}{held.pk}/delete/", {"post": "yes"}, follow=True)
        assert "The job's row is in use; try again." in map(str, response.context["messages"])
    assert list(Job.objects.all()) == [held]


def test_only_ticked_jobs_are_deleted(boss: Client, make_job: MakeJob, run_action: RunAction) -> None:
    first, second, third = (make_job("done") for _ in range(3))
    assert run_action(boss, "delete_selected", first, third, post="yes") == ["2 jobs deleted."]
    assert list(Job.objects.all()) == [second]

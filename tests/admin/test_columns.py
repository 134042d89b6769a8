"""The columns of the lists."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from django_pgqueue.models import Job
from tests.admin.reading import cells, text_of

BASE = "/admin/django_pgqueue/"
JOBS = f"{BASE}job/"
MakeJob = Callable[..., Job]


def test_the_list_says_how_old_a_job_is_and_since_when(boss: Client, make_job: MakeJob) -> None:
    now = timezone.now()
    waiting = make_job("ready", run_after=now - timedelta(minutes=5))
    due = make_job("scheduled", run_after=now + timedelta(hours=2, seconds=30))
    running = make_job("running", last_attempted_at=now - timedelta(seconds=70))
    ended = make_job("done", finished_at=now - timedelta(days=2, hours=3))
    page = boss.get(JOBS)
    assert cells(page, waiting)["age"].startswith("waiting 5 min")
    assert cells(page, due)["age"] == "due in 2 h 0 min"
    assert cells(page, running)["age"].startswith("running 1 min 1")
    assert cells(page, ended)["age"] == "ended 2 d 3 h ago"


def test_the_list_shows_attempts_generation_lease_and_the_last_worker(
    boss: Client, make_job: MakeJob
) -> None:
    now = timezone.now()
    held = make_job("running", lease_until=now + timedelta(seconds=25, milliseconds=900))
    lost = make_job(
        "running",
        lease_until=now - timedelta(seconds=40),
        attempts=2,
        generation=7,
        worker_ids=["a:1", "b:2"],
    )
    page = boss.get(JOBS)
    assert re.fullmatch(r"2\d s left", cells(page, held)["lease"])
    row = cells(page, lost)
    assert re.fullmatch(r"expired 4\d s ago", row["lease"])
    assert (row["attempts"], row["generation"], row["last_worker"]) == ("2 of 5", "7", "b:2")


def test_leases_are_judged_by_the_databases_clock(
    boss: Client, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job("running")
    wrong = timezone.now() + timedelta(hours=5)
    monkeypatch.setattr("django.utils.timezone.now", lambda: wrong)
    client = Client()
    client.force_login(boss.get(JOBS).wsgi_request.user)
    row = cells(client.get(JOBS), job)
    assert row["lease"].endswith("s left")
    assert row["age"].startswith("running")


def test_a_state_of_a_newer_version_is_shown_as_it_is(boss: Client, make_job: MakeJob) -> None:
    """Report 137."""
    job = make_job()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE django_pgqueue_job DROP CONSTRAINT pgqueue_job_state")
        cursor.execute("UPDATE django_pgqueue_job SET state = 'paused', run_after = run_after")
    assert cells(boss.get(JOBS), job)["state"] == "paused"
    assert "paused" in text_of(boss.get(f"{JOBS}{job.pk}/change/"))

"""The page of one job: what happened to it, for any data."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.db.models import JSONField, Value
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_pgqueue.admin import job_page
from django_pgqueue.models import Failure, Job, Rejection

BASE = "/admin/django_pgqueue/"
JOBS = f"{BASE}job/"
MakeJob = Callable[..., Job]


def events(page: Any) -> list[str]:
    """Return the timeline's entries without their times."""
    return [event.title for event in page.context["events"]]


STRANGE: list[dict[str, Any]] = [
    {"task": "gone.away"},
    {"task": ""},
    {"task": "no_dots"},
    {"payload": {}},
    {"payload": Value(None, JSONField())},
    {"payload": [1, 2]},
    {"payload": "text"},
    {"payload": {"args": "no list", "kwargs": None}},
    {"state": "done", "finished_at": None, "result": {"x": [None, True, 1.5]}},
    {"state": "running", "last_attempted_at": None, "started_at": None, "worker_ids": []},
    {"state": "running", "generation": 2**62, "worker_ids": ["one"]},
    {"generation": 5, "worker_ids": ["", "b"]},
    {"state": "cancelled", "cancel_requested_at": timezone.now(), "queue": "", "backend": "gone"},
    {"priority": -100, "unique_key": ""},
]


@pytest.mark.parametrize("fields", STRANGE)
def test_list_and_page_open_for_any_row(fields: dict[str, Any], boss: Client, make_job: MakeJob) -> None:
    """Report 112."""
    job = make_job(fields.get("state", "ready"), **{k: v for k, v in fields.items() if k != "state"})
    Failure.objects.create(job=job, generation=9, kind="error")
    Rejection.objects.create(job_id=job.pk, generation=0, action="complete", verdict="missing")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE django_pgqueue_failure SET kind = 'novel'")
        cursor.execute("UPDATE django_pgqueue_rejection SET verdict = 'novel', action = 'novel'")
    for address in (
        JOBS,
        f"{JOBS}{job.pk}/change/",
        f"{JOBS}{job.pk}/delete/",
        f"{JOBS}{job.pk}/history/",
        f"{BASE}failure/",
        f"{BASE}failure/{Failure.objects.get().pk}/change/",
        f"{BASE}rejection/",
        f"{BASE}rejection/{Rejection.objects.get().pk}/change/",
    ):
        assert boss.get(address).status_code == 200


def test_numbers_too_long_and_nesting_too_deep_do_not_break_the_page(boss: Client, make_job: MakeJob) -> None:
    long, deep = make_job(), make_job()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE django_pgqueue_job SET payload = ('{\"n\": ' || repeat('9', 5000) || ', \"x\": 1e400}')::jsonb"
            " WHERE id = %s",
            [long.pk],
        )
        cursor.execute(
            "UPDATE django_pgqueue_job SET payload = (repeat('[', 5000) || repeat(']', 5000))::jsonb WHERE id = %s",
            [deep.pk],
        )
    for job in (long, deep):
        assert boss.get(f"{JOBS}{job.pk}/change/").status_code == 200
        assert boss.get(f"{JOBS}{job.pk}/download/payload/").status_code == 200


def test_hundreds_of_failures_and_claims_are_shown_in_part_and_linked(
    boss: Client, make_job: MakeJob
) -> None:
    job = make_job("running", generation=400, worker_ids=[f"w{number}" for number in range(1, 401)])
    Failure.objects.bulk_create(
        Failure(job=job, generation=number, kind="error", traceback="t" * 40_000) for number in range(1, 400)
    )
    with CaptureQueriesContext(connection) as captured:
        page = boss.get(f"{JOBS}{job.pk}/change/")
    assert len(captured) <= 8
    assert len(page.content) < 1_000_000
    assert "350 earlier attempts are not shown" in events(page)
    assert "Claimed as generation 400" in events(page)
    assert f"{BASE}failure/?job={job.pk}" in page.content.decode()


def test_the_page_takes_the_same_number_of_queries_for_any_history(boss: Client, make_job: MakeJob) -> None:
    plain, busy = make_job(), make_job("done", worker_ids=["a"] * 30, generation=30)
    for number in range(30):
        Failure.objects.create(job=busy, generation=number, kind="error", traceback="t")
        Rejection.objects.create(job_id=busy.pk, generation=number, action="complete", verdict="superseded")

    def count(job: Job) -> int:
        with CaptureQueriesContext(connection) as captured:
            boss.get(f"{JOBS}{job.pk}/change/")
        return len(captured)

    assert count(plain) == count(busy) <= 7


def test_large_arguments_are_cut_and_can_be_downloaded(boss: Client, make_job: MakeJob) -> None:
    """Report 107."""
    payload = {"args": ["é" * 100_000], "kwargs": {}}
    job = make_job("done", payload=payload, result={"mail": "sent"})
    page = boss.get(f"{JOBS}{job.pk}/change/").content.decode()
    assert len(page) < 100_000
    assert "Only the beginning is shown" in page
    file = boss.get(f"{JOBS}{job.pk}/download/payload/")
    assert json.loads(file.content) == payload
    assert file["Content-Disposition"] == f'attachment; filename="job-{job.pk}-payload.json"'
    assert file["Content-Type"] == "application/json"
    assert json.loads(boss.get(f"{JOBS}{job.pk}/download/result/").content) == {"mail": "sent"}


def test_very_large_arguments_are_not_even_read(
    boss: Client, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Report 107."""
    monkeypatch.setattr(job_page, "SHOWN_BYTES", 100)
    job = make_job(payload={"args": ["x" * 1000], "kwargs": {}})
    page = boss.get(f"{JOBS}{job.pk}/change/").content.decode()
    assert "Too large to show" in page
    assert "xxxxxxxx" not in page


@pytest.mark.parametrize("path", ["task", "worker_ids", "payload__kwargs"])
def test_only_arguments_and_result_can_be_downloaded(path: str, boss: Client, make_job: MakeJob) -> None:
    assert boss.get(f"{JOBS}{make_job().pk}/download/{path}/").status_code == 404


def test_an_absent_result_or_job_is_not_found(boss: Client, make_job: MakeJob) -> None:
    assert boss.get(f"{JOBS}{make_job().pk}/download/result/").status_code == 404
    assert boss.get(f"{JOBS}999999/download/payload/").status_code == 404


def test_the_pages_have_nothing_to_edit_or_save(boss: Client, make_job: MakeJob) -> None:
    """Report 110."""
    job = make_job("running")
    page = boss.get(f"{JOBS}{job.pk}/change/").content.decode()
    assert 'name="_save"' not in page
    assert not re.search(r'<(input|select|textarea)[^>]*name="(state|task|queue|generation)', page)


def test_the_priority_says_which_way_it_counts(boss: Client, make_job: MakeJob) -> None:
    """Report 122."""
    assert "higher runs first" in boss.get(f"{JOBS}{make_job().pk}/change/").content.decode()

"""The page of one job: what happened to it, for any data."""

import json
import re
from collections.abc import Callable
from datetime import timedelta
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
    # field report 112
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
    # field report 107
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
    # field report 107
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


def test_values_under_secret_names_are_hidden_on_page_and_download(boss: Client, make_job: MakeJob) -> None:
    # field report 127
    secrets = {
        "password": "hunter2-marker",
        "API_KEY": "hunter2-marker",
        "nested": [{"access-token": {"a": "hunter2-marker"}}],
        "db_pass": "hunter2-marker",
    }
    job = make_job(
        "done",
        payload={"args": [], "kwargs": {**secrets, "author": "Ann", "passenger": "Bob"}},
        result=secrets,
    )
    for address in ("change/", "download/payload/", "download/result/"):
        text = boss.get(f"{JOBS}{job.pk}/{address}").content.decode()
        assert "hunter2-marker" not in text
        assert "****" in text
    page = boss.get(f"{JOBS}{job.pk}/change/").content.decode()
    assert "Ann" in page
    assert "Bob" in page
    assert "hunter2-marker" not in boss.get(JOBS).content.decode()


def test_a_project_can_hide_more(boss: Client, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    # field report 127
    from django.contrib import admin

    monkeypatch.setattr(type(admin.site._registry[Job]), "redact", lambda self, value: "nothing to see")
    job = make_job(payload={"args": ["iban-marker"], "kwargs": {}})
    page = boss.get(f"{JOBS}{job.pk}/change/").content.decode()
    assert "iban-marker" not in page
    assert "nothing to see" in page


def test_a_result_of_null_and_no_result_are_none(boss: Client, make_job: MakeJob) -> None:
    job = make_job("done", result=None)
    page = boss.get(f"{JOBS}{job.pk}/change/")
    assert page.context["documents"][1].note == "None"


def test_the_pages_have_nothing_to_edit_or_save(boss: Client, make_job: MakeJob) -> None:
    # field report 110
    job = make_job("running")
    page = boss.get(f"{JOBS}{job.pk}/change/").content.decode()
    assert 'name="_save"' not in page
    assert not re.search(r'<(input|select|textarea)[^>]*name="(state|task|queue|generation)', page)


def test_the_priority_says_which_way_it_counts(boss: Client, make_job: MakeJob) -> None:
    # field report 122
    assert "higher runs first" in boss.get(f"{JOBS}{make_job().pk}/change/").content.decode()

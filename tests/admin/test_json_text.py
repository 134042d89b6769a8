"""Arguments and results as the pages show them."""

from collections.abc import Callable

import pytest
from django.test import Client

from django_pgqueue.models import Job

BASE = "/admin/django_pgqueue/"
JOBS = f"{BASE}job/"
MakeJob = Callable[..., Job]


def test_values_under_secret_names_are_hidden_on_page_and_download(boss: Client, make_job: MakeJob) -> None:
    """Report 127."""
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
    """Report 127."""
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

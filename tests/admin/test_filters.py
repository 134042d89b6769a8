"""The filters of the lists."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from django_pgqueue.models import Job
from tests.admin.reading import text_of

BASE = "/admin/django_pgqueue/"
JOBS = f"{BASE}job/"
MakeJob = Callable[..., Job]


def test_jobs_are_filtered_by_state_and_queue(boss: Client, make_job: MakeJob) -> None:
    wanted = make_job("failed", queue="mail")
    make_job("failed", queue="other")
    make_job("done", queue="mail")
    listed = boss.get(f"{JOBS}?state=failed&queue=mail").context["cl"].result_list
    assert [job.pk for job in listed] == [wanted.pk]


def test_jobs_whose_lease_has_expired_have_a_filter(boss: Client, make_job: MakeJob) -> None:
    make_job("running")
    lost = make_job("running", lease_until=timezone.now() - timedelta(seconds=1))
    assert [job.pk for job in boss.get(f"{JOBS}?state=expired").context["cl"].result_list] == [lost.pk]


def test_the_queue_filter_knows_configured_ready_and_recent_queues(
    boss: Client, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_pgqueue.admin.job_filters.RECENT_JOBS", 1)
    make_job("done", queue="long-ago")
    make_job("ready", queue="ready-one")
    make_job("done", queue="recent")
    page = text_of(boss.get(JOBS))
    for name in ("default", "receipts", "reports", "ready-one", "recent"):
        assert f" {name} " in f"{page} "
    assert "queue=long-ago" not in boss.get(JOBS).content.decode()
    assert len(boss.get(f"{JOBS}?queue=long-ago").context["cl"].result_list) == 1


def test_choosing_a_filter_starts_again_at_the_newest_rows(boss: Client, make_job: MakeJob) -> None:
    make_job()
    page = boss.get(f"{JOBS}?before=99&state=ready").content.decode()
    assert "?state=done" in page
    assert "before=99&amp;state=done" not in page


@pytest.mark.parametrize(
    "lookup",
    ["payload__kwargs__password__startswith=h", "task__regex=.*", "failures__message__contains=x", "pk=1"],
)
def test_no_lookup_but_the_filters_own_reaches_the_database(lookup: str, boss: Client) -> None:
    """A lookup could guess at a secret that the page hides. Report 127."""
    assert boss.get(f"{JOBS}?{lookup}").status_code == 400

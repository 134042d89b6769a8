"""Whatever the data says, it is text; and numbers in addresses are digits in every locale."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from django_pgqueue.models import Failure, Job, Rejection, Worker

BASE = "/admin/django_pgqueue/"
JOBS = f"{BASE}job/"
EVIL = '"><script>alert(7)</script>'
MakeJob = Callable[..., Job]


@pytest.fixture
def evil_job(make_job: MakeJob) -> Job:
    """Return a job that has the text in every place that takes text."""
    job = make_job(
        "running",
        task=f"{EVIL}.tasks.{EVIL}",
        queue=EVIL,
        backend=EVIL,
        unique_key=EVIL,
        worker_ids=[EVIL, EVIL],
        generation=2,
        payload={"args": [EVIL], "kwargs": {EVIL: EVIL}},
        result={EVIL: [EVIL]},
    )
    Failure.objects.create(
        job=job, generation=1, kind="error", worker=EVIL, exception_class=EVIL, message=EVIL, traceback=EVIL
    )
    Rejection.objects.create(
        job_id=job.pk, generation=1, action="complete", verdict="superseded", worker=EVIL, seen_state="done"
    )
    Worker.objects.create(id=EVIL, host=EVIL, pid=1, concurrency=1, queues=[EVIL])
    with connection.cursor() as cursor:
        cursor.execute("UPDATE django_pgqueue_failure SET kind = %s", [EVIL[:20]])
        cursor.execute(
            "UPDATE django_pgqueue_rejection SET verdict = %s, action = %s, seen_state = %s",
            [EVIL[:20], EVIL[:20], EVIL[:10]],
        )
    return job


def test_data_is_escaped_on_every_page(boss: Client, evil_job: Job) -> None:
    """Report 153."""
    pages = [
        boss.get(address)
        for address in (
            JOBS,
            f"{JOBS}?q={EVIL}",
            f"{JOBS}?queue={EVIL}",
            f"{JOBS}?state={EVIL}",
            f"{JOBS}{evil_job.pk}/change/",
            f"{JOBS}{evil_job.pk}/delete/",
            f"{JOBS}{evil_job.pk}/history/",
            f"{BASE}failure/",
            f"{BASE}failure/?q={EVIL}",
            f"{BASE}failure/{Failure.objects.get().pk}/change/",
            f"{BASE}rejection/",
            f"{BASE}rejection/?verdict={EVIL}",
            f"{BASE}rejection/{Rejection.objects.get().pk}/change/",
            f"{BASE}worker/",
        )
    ]
    worker = re.search(r'href="(/admin/django_pgqueue/worker/[^"]+/change/)"', pages[-1].content.decode())
    assert worker is not None
    pages.append(boss.get(worker[1]))
    pages.append(boss.post(f"{JOBS}{evil_job.pk}/cancel/", follow=True))
    data = {"action": "delete_selected", "index": "0", "_selected_action": str(evil_job.pk), "x": EVIL}
    pages.append(boss.post(JOBS, data))
    for page in pages:
        html = page.content.decode()
        assert page.status_code == 200
        assert "<script>alert" not in html
        assert '"><script' not in html
        assert '"><scr' not in html


def test_a_download_is_never_a_page(boss: Client, evil_job: Job) -> None:
    """Report 153."""
    file = boss.get(f"{JOBS}{evil_job.pk}/download/payload/")
    assert file["Content-Type"] == "application/json"
    assert file["Content-Disposition"].startswith("attachment")
    assert file["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("language", ["de", "ar", "fr"])
def test_ids_in_addresses_are_digits_in_every_locale(
    language: str, boss: Client, make_job: MakeJob, settings: Any, many_jobs: Callable[..., None]
) -> None:
    """Report 161."""
    settings.USE_THOUSAND_SEPARATOR = True
    settings.LANGUAGE_CODE = language
    job = make_job(
        "failed",
        pk=1_234_567,
        priority=-100,
        generation=4321,
        finished_at=timezone.now() - timedelta(days=2000),
    )
    make_job("scheduled", pk=1_234_566)
    make_job("done", pk=1_234_565)
    failure = Failure.objects.create(pk=7_654_321, job=job, generation=4321, kind="error")
    rejection = Rejection.objects.create(
        pk=8_654_321, job_id=job.pk, generation=1, action="complete", verdict="superseded"
    )
    pages = {
        address: boss.get(address).content.decode()
        for address in (
            JOBS,
            f"{JOBS}?before=2000000",
            f"{JOBS}{job.pk}/change/",
            f"{JOBS}{job.pk}/delete/",
            f"{JOBS}1234566/change/",
            f"{BASE}failure/",
            f"{BASE}failure/{failure.pk}/change/",
            f"{BASE}rejection/",
            f"{BASE}rejection/{rejection.pk}/change/",
        )
    }
    for html in pages.values():
        for value in re.findall(r'(?:href|action|value|name|id)="([^"]*)"', html):
            assert not re.search(r"\d[.,\s\u00a0\u202f\u066c]\d{3}", value), value
    assert f'href="{JOBS}1234567/change/"' in pages[JOBS]
    assert 'value="1234567"' in pages[JOBS]
    assert f'action="{JOBS}1234567/retry/"' in pages[f"{JOBS}{job.pk}/change/"]
    assert f'action="{JOBS}1234566/run_now/"' in pages[f"{JOBS}1234566/change/"]
    assert f"{BASE}rejection/?job=1234567" in pages[JOBS]
    data = {"action": "delete_selected", "index": "0", "_selected_action": "1234565"}
    assert 'value="1234565"' in boss.post(JOBS, data).content.decode()
    assert boss.post(f"{JOBS}1234567/retry/").status_code == 302
    assert Job.objects.get(pk=1_234_567).state == "ready"

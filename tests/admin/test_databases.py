"""The admin of a queue on a database of its own."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections
from django.test import Client

from django_pgqueue.models import Failure, Job

JOBS = "/admin/django_pgqueue/job/"


class QueueOnOther:
    """Keeps the queue on the alias `other`."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        """Send reads of the queue's tables to a database that must not be used."""
        return "default" if model._meta.app_label == "django_pgqueue" else None

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        """Send the queue's tables to `other`."""
        return "other" if model._meta.app_label == "django_pgqueue" else None


@pytest.mark.django_db(databases=["default", "other"])
def test_lists_pages_and_actions_use_the_queues_own_database(
    boss: Client, settings: Any, many_jobs: Callable[..., None], run_action: Callable[..., list[str]]
) -> None:
    """Report 114."""
    settings.DATABASE_ROUTERS = [f"{__name__}.QueueOnOther"]
    many_jobs(3, "failed", using="other")
    jobs = list(Job.objects.using("other").order_by("-pk"))
    for job in jobs:
        Failure.objects.using("other").create(job=job, generation=1, kind="error", message="boom")
    assert [job.pk for job in boss.get(JOBS).context["cl"].result_list] == [job.pk for job in jobs]
    page = boss.get(f"{JOBS}{jobs[0].pk}/change/")
    assert "boom" in page.content.decode()
    assert run_action(boss, "retry_jobs", jobs[0]) == ["Retry: 1 job changed: ready."]
    assert boss.post(f"{JOBS}{jobs[1].pk}/retry/").status_code == 302
    assert boss.post(f"{JOBS}{jobs[2].pk}/delete/", {"post": "yes"}).status_code == 302
    assert sorted(Job.objects.using("other").values_list("state", flat=True)) == ["ready", "ready"]
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM django_pgqueue_job")
        assert cursor.fetchone() == (0,)

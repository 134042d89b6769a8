"""What the admin's tests share: jobs in any state, and people with chosen permissions."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connections
from django.test import Client
from django.utils import timezone

from django_pgqueue.models import Job

JOBS = "/admin/django_pgqueue/job/"


@pytest.fixture
def make_job(db: None) -> Callable[..., Job]:
    """Return a function that makes a job in `state`, with the columns that this state needs."""

    def make(state: str = "ready", **fields: Any) -> Job:
        now = timezone.now()
        needed: dict[str, Any] = {"task": "shop.tasks.send_receipt", "state": state}
        if state == "running":
            needed |= {
                "lease_until": now + timedelta(seconds=30),
                "last_attempted_at": now,
                "started_at": now,
                "generation": 1,
                "attempts": 1,
                "worker_ids": ["box-1:1:a"],
            }
        elif state == "scheduled":
            needed |= {"run_after": now + timedelta(hours=1)}
        elif state != "ready":
            needed |= {"finished_at": now}
        job = Job.objects.create(**{**needed, **fields})
        job.refresh_from_db()
        return job

    return make


@pytest.fixture
def staff(db: None) -> Callable[..., Client]:
    """Return a function that logs in a member of staff with the named permissions of this app."""

    def log_in(*codenames: str) -> Client:
        user = User.objects.create_user(f"staff-{User.objects.count()}", is_staff=True)
        found = Permission.objects.filter(content_type__app_label="django_pgqueue", codename__in=codenames)
        assert found.count() == len(codenames)
        user.user_permissions.set(found)
        client = Client()
        client.force_login(user)
        return client

    return log_in


@pytest.fixture
def boss(db: None) -> Client:
    """Return a client of a superuser; without a password, whose hashing takes longer than most tests here."""
    client = Client()
    client.force_login(User.objects.create(username="boss", is_staff=True, is_superuser=True))
    return client


@pytest.fixture
def run_action() -> Callable[..., list[str]]:
    """Return a function that runs an action of the list of jobs and returns the messages shown."""

    def run(
        client: Client, action: str, *jobs: Job, across: bool = False, query: str = "", **more: str
    ) -> list[str]:
        data = {
            "action": action,
            "index": "0",
            "select_across": "1" if across else "0",
            "_selected_action": [str(job.pk) for job in jobs],
            **more,
        }
        response = client.post(f"{JOBS}{query}", data, follow=True)
        assert response.status_code == 200
        return [str(message) for message in response.context["messages"]]

    return run


@pytest.fixture
def many_jobs(db: None) -> Callable[..., None]:
    """Return a function that inserts `count` jobs in `state` with one statement."""

    def insert(count: int, state: str = "failed", using: str = "default") -> None:
        with connections[using].cursor() as cursor:
            cursor.execute(
                "INSERT INTO django_pgqueue_job"
                " (task, queue, state, payload, finished_at, generation, attempts, worker_ids)"
                " SELECT 'shop.tasks.t' || mod(i, 5), 'queue-' || mod(i, 3), %s, '{\"args\": [1], \"kwargs\": {}}',"
                " statement_timestamp(), 1, 1, ARRAY['box:1:a'] FROM generate_series(1, %s) AS i",
                [state, count],
            )

    return insert

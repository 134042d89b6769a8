"""Who may see and who may do what; a crafted request gets no further than the buttons."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from django_pgqueue.models import Failure, Job, Rejection, Worker

BASE = "/admin/django_pgqueue/"
JOBS = f"{BASE}job/"
MakeJob = Callable[..., Job]
Staff = Callable[..., Client]

ACTS = {
    "retry_jobs": ("failed", "retry_job"),
    "cancel_jobs": ("ready", "cancel_job"),
    "run_jobs_now": ("scheduled", "run_now_job"),
    "delete_selected": ("done", "delete_job"),
}
VERBS = {"retry": "retry_jobs", "cancel": "cancel_jobs", "run_now": "run_jobs_now"}
ALL = {"retry_job", "cancel_job", "run_now_job", "delete_job", "change_job", "add_job"}


def snapshot() -> list[tuple[Any, ...]]:
    """Return every job's columns."""
    return list(Job.objects.order_by("pk").values_list())


def post_action(client: Client, action: str, job: Job, **more: str) -> Any:
    """Send the form of the list of jobs."""
    data = {"action": action, "index": "0", "select_across": "0", "_selected_action": str(job.pk), **more}
    return client.post(JOBS, data)


def test_view_only_staff_see_everything(staff: Staff, make_job: MakeJob) -> None:
    """Reports 111 and 156."""
    client = staff("view_job", "view_failure", "view_rejection", "view_worker")
    job = make_job("failed")
    failure = Failure.objects.create(job=job, generation=1, kind="error")
    rejection = Rejection.objects.create(job_id=job.pk, generation=1, action="complete", verdict="superseded")
    worker = Worker.objects.create(id="w", host="h", pid=1, concurrency=1)
    for address in (
        JOBS,
        f"{JOBS}{job.pk}/change/",
        f"{JOBS}{job.pk}/download/payload/",
        f"{JOBS}{job.pk}/history/",
        f"{BASE}failure/",
        f"{BASE}failure/{failure.pk}/change/",
        f"{BASE}rejection/",
        f"{BASE}rejection/{rejection.pk}/change/",
        f"{BASE}worker/",
        f"{BASE}worker/{worker.pk}/change/",
    ):
        assert client.get(address).status_code == 200
    page = client.get(JOBS).content.decode()
    assert "retry_jobs" not in page
    assert "/retry/" not in client.get(f"{JOBS}{job.pk}/change/").content.decode()


@pytest.mark.parametrize("action", ACTS)
def test_view_only_staff_can_do_nothing_even_by_a_crafted_post(
    action: str, staff: Staff, make_job: MakeJob
) -> None:
    """Reports 111 and 156."""
    client = staff("view_job")
    job = make_job(ACTS[action][0])
    before = snapshot()
    post_action(client, action, job)
    post_action(client, action, job, post="yes", select_across="1")
    client.post(JOBS, {"action": action, "_selected_action": str(job.pk), "post": "yes"})
    assert snapshot() == before


@pytest.mark.parametrize("action", ACTS)
def test_each_action_asks_for_its_own_permission(action: str, staff: Staff, make_job: MakeJob) -> None:
    """Report 156."""
    state, needed = ACTS[action]
    job = make_job(state)
    before = snapshot()
    post_action(staff("view_job", *(ALL - {needed})), action, job, post="yes")
    assert snapshot() == before
    post_action(staff("view_job", needed), action, job, post="yes")
    assert snapshot() != before


@pytest.mark.parametrize("verb", VERBS)
def test_each_button_asks_for_its_own_permission(verb: str, staff: Staff, make_job: MakeJob) -> None:
    """Report 156."""
    state, needed = ACTS[VERBS[verb]]
    job = make_job(state)
    before = snapshot()
    address = f"{JOBS}{job.pk}/{verb}/"
    assert staff("view_job", *(ALL - {needed})).post(address).status_code == 403
    assert staff(needed).post(address).status_code == 403  # who may not look may not act
    assert Client().post(address).status_code == 302  # to the login
    assert snapshot() == before
    assert staff("view_job", needed).post(address).status_code == 302
    assert snapshot() != before


@pytest.mark.parametrize("verb", VERBS)
def test_a_get_never_changes_anything(verb: str, boss: Client, make_job: MakeJob) -> None:
    """Report 156."""
    job = make_job(ACTS[VERBS[verb]][0])
    before = snapshot()
    assert boss.get(f"{JOBS}{job.pk}/{verb}/").status_code == 405
    assert boss.head(f"{JOBS}{job.pk}/{verb}/").status_code == 405
    action = VERBS[verb]
    boss.get(JOBS, {"action": action, "_selected_action": job.pk, "index": 0, "select_across": 1})
    boss.get(f"{JOBS}{job.pk}/delete/", {"post": "yes"})
    assert snapshot() == before


@pytest.mark.parametrize("verb", VERBS)
def test_a_post_without_the_csrf_token_is_refused(verb: str, boss: Client, make_job: MakeJob) -> None:
    job = make_job(ACTS[VERBS[verb]][0])
    before = snapshot()
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = boss.cookies
    assert strict.post(f"{JOBS}{job.pk}/{verb}/").status_code == 403
    assert snapshot() == before


@pytest.mark.parametrize("name", ["job", "failure", "rejection", "worker"])
def test_nobody_can_add_or_change_by_hand(name: str, boss: Client, make_job: MakeJob) -> None:
    """Report 110."""
    job = make_job("running")
    Failure.objects.create(pk=job.pk, job=job, generation=1, kind="error")
    Rejection.objects.create(pk=job.pk, job_id=job.pk, generation=1, action="complete", verdict="superseded")
    Worker.objects.create(id=str(job.pk), host="h", pid=1, concurrency=1)
    before = snapshot()
    assert boss.get(f"{BASE}{name}/add/").status_code == 403
    assert boss.post(f"{BASE}{name}/add/", {"task": "x"}).status_code == 403
    assert boss.post(f"{BASE}{name}/{job.pk}/change/", {"state": "done", "_save": "1"}).status_code == 403
    assert snapshot() == before


@pytest.mark.parametrize("name", ["failure", "rejection", "worker"])
def test_records_are_not_deleted_by_hand(name: str, boss: Client, make_job: MakeJob) -> None:
    job = make_job()
    Rejection.objects.create(pk=job.pk, job_id=job.pk, generation=1, action="complete", verdict="superseded")
    Failure.objects.create(pk=job.pk, job=job, generation=1, kind="error")
    Worker.objects.create(id=str(job.pk), host="h", pid=1, concurrency=1)
    assert boss.post(f"{BASE}{name}/{job.pk}/delete/", {"post": "yes"}).status_code == 403
    data = {"action": "delete_selected", "_selected_action": str(job.pk), "post": "yes"}
    boss.post(f"{BASE}{name}/", data)
    assert (Failure.objects.count(), Rejection.objects.count(), Worker.objects.count()) == (1, 1, 1)


def test_staff_without_permissions_see_nothing(staff: Staff, make_job: MakeJob) -> None:
    """Report 111."""
    client = staff()
    job = make_job()
    assert client.get(JOBS).status_code == 403
    assert client.get(f"{JOBS}{job.pk}/change/").status_code == 403
    assert client.get(f"{JOBS}{job.pk}/download/payload/").status_code == 403
    assert "Job queue" not in client.get("/admin/").content.decode()


def test_a_superuser_sees_and_does_everything(boss: Client, make_job: MakeJob) -> None:
    """Report 111."""
    job = make_job("failed")
    page = boss.get(JOBS).content.decode()
    for action in ACTS:
        assert action in page
    assert "Job queue" in boss.get("/admin/").content.decode()
    assert boss.post(f"{JOBS}{job.pk}/retry/").status_code == 302
    assert Job.objects.get().state == "ready"

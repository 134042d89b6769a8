"""Retry, cancel and run now: through the transitions, one job at a time, with honest answers."""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import psycopg
import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client

from django_pgqueue.admin import operations
from django_pgqueue.models import Job

JOBS = "/admin/django_pgqueue/job/"
MakeJob = Callable[..., Job]
RunAction = Callable[..., list[str]]


@pytest.fixture
def one_of_each(make_job: MakeJob) -> dict[str, Job]:
    """Return one job of each state."""
    states = ("scheduled", "ready", "running", "done", "failed", "cancelled")
    return {state: make_job(state, generation=3, attempts=2) for state in states}


def states(jobs: dict[str, Job]) -> dict[str, str]:
    """Return the present state of each job by its old one."""
    now = dict(Job.objects.values_list("pk", "state"))
    return {old: now[job.pk] for old, job in jobs.items()}


def test_retry_changes_only_ended_jobs_and_says_why_it_refused_others(
    boss: Client, one_of_each: dict[str, Job], run_action: RunAction
) -> None:
    """Report 157."""
    shown = run_action(boss, "retry_jobs", *one_of_each.values())
    assert shown == [
        "Retry: 3 jobs changed: ready.",
        "Retry: 1 job was refused: the job is ready.",
        "Retry: 1 job was refused: the job is running.",
        "Retry: 1 job was refused: the job is scheduled.",
    ]
    assert states(one_of_each) == {
        "scheduled": "scheduled",
        "ready": "ready",
        "running": "running",
        "done": "ready",
        "failed": "ready",
        "cancelled": "ready",
    }
    retried = Job.objects.get(pk=one_of_each["failed"].pk)
    assert (retried.attempts, retried.generation) == (0, 3)
    running = Job.objects.get(pk=one_of_each["running"].pk)
    assert (running.generation, running.lease_until) == (3, one_of_each["running"].lease_until)


def test_cancel_gives_three_honest_answers(
    boss: Client, one_of_each: dict[str, Job], run_action: RunAction
) -> None:
    """Reports 145 and 146."""
    shown = run_action(boss, "cancel_jobs", *one_of_each.values())
    assert shown == [
        "Cancel: 1 job changed: cancellation requested.",
        "Cancel: 2 jobs changed: cancelled.",
        "Cancel: 1 job was refused: the job has already ended as cancelled.",
        "Cancel: 1 job was refused: the job has already ended as done.",
        "Cancel: 1 job was refused: the job has already ended as failed.",
    ]
    assert states(one_of_each)["running"] == "running"
    assert Job.objects.get(pk=one_of_each["running"].pk).cancel_requested_at is not None


def test_run_now_is_for_scheduled_jobs(
    boss: Client, one_of_each: dict[str, Job], run_action: RunAction
) -> None:
    """Report 115."""
    shown = run_action(boss, "run_jobs_now", *one_of_each.values())
    assert shown[0] == "Run now: 1 job changed: ready."
    assert len(shown) == 6
    changed = {old for old, new in states(one_of_each).items() if old != new}
    assert changed == {"scheduled"}


@pytest.mark.parametrize(
    ("verb", "state", "after"),
    [("retry", "failed", "ready"), ("cancel", "ready", "cancelled"), ("run_now", "scheduled", "ready")],
)
def test_the_buttons_on_the_page_do_the_same(
    verb: str, state: str, after: str, boss: Client, make_job: MakeJob
) -> None:
    job = make_job(state)
    page = boss.get(f"{JOBS}{job.pk}/change/").content.decode()
    assert f'action="{JOBS}{job.pk}/{verb}/"' in page
    response = boss.post(f"{JOBS}{job.pk}/{verb}/", follow=True)
    assert response.redirect_chain == [(f"{JOBS}{job.pk}/change/", 302)]
    assert len(list(response.context["messages"])) == 1
    assert Job.objects.get().state == after


def test_the_page_offers_only_what_fits_the_state(boss: Client, one_of_each: dict[str, Job]) -> None:
    offered = {
        state: {verb["name"] for verb in boss.get(f"{JOBS}{job.pk}/change/").context["verbs"]}
        for state, job in one_of_each.items()
    }
    assert offered == {
        "scheduled": {"run_now", "cancel"},
        "ready": {"cancel"},
        "running": {"cancel"},
        "done": {"retry"},
        "failed": {"retry"},
        "cancelled": {"retry"},
    }


def test_a_button_for_a_job_that_is_gone_says_so(boss: Client, db: None) -> None:
    response = boss.post(f"{JOBS}77/retry/", follow=True)
    assert "Retry: none of the chosen jobs exists any more." in map(str, response.context["messages"])


def test_a_unique_key_taken_meanwhile_refuses_a_retry(
    boss: Client, make_job: MakeJob, run_action: RunAction
) -> None:
    old, _live = make_job("failed", unique_key="k"), make_job("ready", unique_key="k")
    assert run_action(boss, "retry_jobs", old) == [
        "Retry: 1 job was refused: another live job holds its unique key."
    ]


def test_a_ticked_job_that_left_the_filter_meanwhile_is_answered_for(
    boss: Client, make_job: MakeJob, run_action: RunAction
) -> None:
    """Report 157."""
    job = make_job("running")
    assert run_action(boss, "retry_jobs", job, query="?state=failed") == [
        "Retry: 1 job was refused: the job is running."
    ]


def test_who_did_it_is_in_the_jobs_history(boss: Client, make_job: MakeJob, run_action: RunAction) -> None:
    jobs = [make_job("failed"), make_job("running")]
    run_action(boss, "retry_jobs", *jobs)
    assert [(entry.object_id, entry.change_message) for entry in LogEntry.objects.all()] == [
        (str(jobs[0].pk), "Retry")
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("number", [1_500, pytest.param(5_000, marks=pytest.mark.slow)])
def test_retry_of_thousands_selected_across_pages(
    number: int, boss: Client, many_jobs: Callable[..., None], make_job: MakeJob, run_action: RunAction
) -> None:
    """More than the thousand fields that a form may have. One request does them all, or says how many are left.

    Report 109.
    """
    many_jobs(number)
    running = make_job("running")
    left = number
    while left:
        ticked = Job.objects.filter(state="failed").order_by("-pk")[:50]
        shown = run_action(boss, "retry_jobs", *ticked, across=True, query="?state=failed")
        not_reached = Job.objects.filter(state="failed").count()
        assert not_reached < left
        assert shown[0] == f"Retry: {left - not_reached} jobs changed: ready."
        assert len(shown) == (2 if not_reached else 1)
        left = not_reached
    assert Job.objects.filter(state="ready").count() == number
    assert Job.objects.get(pk=running.pk).state == "running"


def test_select_across_acts_on_no_more_than_the_list_says(
    boss: Client, many_jobs: Callable[..., None], run_action: RunAction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_pgqueue.admin.changelist.LISTED", 70)
    monkeypatch.setattr("django_pgqueue.admin.operations.LISTED", 70)
    many_jobs(100)
    assert "Select all 70 jobs" in boss.get(f"{JOBS}?state=failed").content.decode()
    ticked = Job.objects.order_by("-pk")[:1]
    assert run_action(boss, "retry_jobs", *ticked, across=True, query="?state=failed") == [
        "Retry: 70 jobs changed: ready."
    ]
    assert Job.objects.filter(state="failed").count() == 30


def test_an_action_stops_in_time_and_says_how_many_it_did_not_reach(make_job: MakeJob) -> None:
    """Report 109."""
    jobs = [make_job("failed").pk for _ in range(3)]
    tally = operations.apply(operations.RETRY, jobs, longest=timedelta(seconds=-1))
    assert (tally.changed, tally.not_reached) == ([], 3)


@pytest.fixture
def locked(transactional_db: None) -> Iterator[Callable[[Job], None]]:
    """Return a function that locks a job's row from another session, as a fence does."""
    with psycopg.connect(**connection.get_connection_params()) as session:

        def lock(job: Job) -> None:
            session.execute("SELECT FROM django_pgqueue_job WHERE id = %s FOR UPDATE", [job.pk])

        yield lock


@pytest.mark.django_db(transaction=True)
def test_a_row_that_a_running_job_holds_is_not_waited_for_long(
    boss: Client, make_job: MakeJob, locked: Callable[[Job], None], run_action: RunAction
) -> None:
    job, other = make_job("running"), make_job("running")
    locked(job)
    started = time.monotonic()
    shown = run_action(boss, "cancel_jobs", job, other)
    assert time.monotonic() - started < 5
    assert shown == [
        "Cancel: 1 job changed: cancellation requested.",
        "Cancel: 1 job was refused: the job's row is in use; try again.",
    ]


@pytest.mark.parametrize("atomic", [False, True])
def test_actions_work_inside_a_requests_transaction(
    atomic: bool, boss: Client, make_job: MakeJob, run_action: RunAction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic)
    old, _live = make_job("failed", unique_key="k"), make_job("ready", unique_key="k")
    fine = make_job("failed")
    assert len(run_action(boss, "retry_jobs", old, fine)) == 2
    assert Job.objects.get(pk=fine.pk).state == "ready"

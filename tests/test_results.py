"""Results as `django.tasks` defines them, and what becomes of jobs whose outcome is hard to keep."""

import json
import sys
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_pgqueue.backend import PgQueueBackend
from django_pgqueue.compat import TASKS_PACKAGE, TaskResult, TaskResultStatus, task_backends
from django_pgqueue.leases import claim
from django_pgqueue.models import Job
from django_pgqueue.outcomes import cancel, complete, fail, retry
from django_pgqueue.results import sender_of
from django_pgqueue.states import State, Verdict
from django_pgqueue.upkeep import exhaust
from tests.worker.batches import run_worker, succeed

WORKER = "somebody-1"


# Statuses


@pytest.mark.django_db
def test_a_ready_job() -> None:
    result = succeed.enqueue(1)
    for one in (result, succeed.get_result(result.id)):
        assert (one.status, one.is_finished, one.attempts) == (TaskResultStatus.READY, False, 0)
        assert (one.started_at, one.finished_at, one.last_attempted_at) == (None, None, None)
        assert (one.errors, one.worker_ids, one.backend) == ([], [], "default")
        assert (one.args, one.kwargs, one.task) == ([1], {}, succeed)
        with pytest.raises(ValueError, match="not finished"):
            one.return_value  # noqa: B018
    assert succeed.get_result(result.id).enqueued_at == result.enqueued_at


@pytest.mark.django_db
def test_a_scheduled_job() -> None:
    result = succeed.using(run_after=timedelta(hours=1)).enqueue()
    again = succeed.get_result(result.id)
    assert again.status == result.status == TaskResultStatus.READY
    assert again.task.run_after == again.enqueued_at + timedelta(hours=1)


@pytest.mark.django_db
def test_a_running_job() -> None:
    result = succeed.enqueue()
    claim(worker=WORKER)
    result.refresh()
    assert (result.status, result.is_finished) == (TaskResultStatus.RUNNING, False)
    assert (result.worker_ids, result.attempts) == ([WORKER], 1)
    assert result.started_at == result.last_attempted_at is not None
    assert result.finished_at is None


@pytest.mark.django_db
@pytest.mark.parametrize("value", [None, 0, "", False, [], {"a": [1, None]}, "text", 1.5, [1, [2]]])
def test_a_successful_job_keeps_its_return_value(value: Any) -> None:
    result = succeed.enqueue()
    (lease,) = claim(worker=WORKER)
    assert complete(lease, value) == Verdict.ACCEPTED
    result.refresh()
    assert (result.status, result.is_finished) == (TaskResultStatus.SUCCESSFUL, True)
    assert result.return_value == value and type(result.return_value) is type(value)
    assert result.finished_at >= result.started_at >= result.enqueued_at
    assert result.errors == []


@pytest.mark.django_db
def test_a_failed_job_lists_every_error() -> None:
    result = succeed.using(max_attempts=2).enqueue()
    for number in (1, 2):
        (lease,) = claim(worker=f"w-{number}")
        try:
            raise LookupError(f"number {number}")
        except LookupError as error:
            fail(lease, error, delay=timedelta(0))
    result.refresh()
    assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.FAILED, True, 2)
    assert result.worker_ids == ["w-1", "w-2"]
    assert [error.exception_class for error in result.errors] == [LookupError, LookupError]
    assert "number 1" in result.errors[0].traceback and "number 2" in result.errors[1].traceback
    assert result.last_attempted_at > result.started_at
    with pytest.raises(ValueError, match="Task failed"):
        result.return_value  # noqa: B018


@pytest.mark.django_db
def test_a_job_whose_lease_expired_for_good_has_failed_with_lease_lost() -> None:
    result = succeed.using(max_attempts=1).enqueue()
    claim(worker=WORKER)
    Job.objects.update(lease_until="2000-01-01T00:00Z")
    assert len(exhaust()) == 1
    result.refresh()
    assert (result.status, len(result.errors)) == (TaskResultStatus.FAILED, 1)
    assert result.errors[0].exception_class.__name__ == "LeaseLost"
    assert "last of 1 attempts" in result.errors[0].traceback


@pytest.mark.django_db
def test_a_cancelled_job_has_failed() -> None:
    result = succeed.enqueue()
    cancel(int(result.id))
    result.refresh()
    assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.FAILED, True, 0)
    assert result.finished_at is not None and result.errors == []
    with pytest.raises(ValueError, match="Task failed"):
        result.return_value  # noqa: B018


@pytest.mark.django_db
def test_a_job_that_an_operator_retries_is_ready_again_and_keeps_its_history() -> None:
    result = succeed.using(max_attempts=1).enqueue()
    (lease,) = claim(worker=WORKER)
    fail(lease, ValueError("no"))
    assert retry(int(result.id)).accepted
    result.refresh()
    assert (result.status, result.finished_at) == (TaskResultStatus.READY, None)
    assert (result.worker_ids, len(result.errors)) == ([WORKER], 1)


@pytest.mark.django_db
def test_a_result_costs_two_queries_whatever_has_happened() -> None:
    result = succeed.using(max_attempts=9).enqueue()
    for _ in range(5):
        (lease,) = claim(worker=WORKER)
        fail(lease, ValueError("no"), delay=timedelta(0))
    with CaptureQueriesContext(connection) as queries:
        result.refresh()
    assert len(queries) == 2 and len(result.errors) == 5


# Rows that this code did not write


def row(**columns: Any) -> TaskResult:
    job = Job.objects.create(task=columns.pop("task", f"{__name__}.succeed"), **columns)
    return task_backends["default"].get_result(str(job.pk))


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path",
    [
        "gone.tasks.send",
        f"{__name__}.gone",
        f"{__name__}.AT_ONCE",
        "json",
        "",
        ".",
        "ünïcode.tâsk",
        "x" * 500,
    ],
)
def test_the_result_of_a_task_whose_code_is_gone_is_readable(path: str) -> None:
    """Report 103."""
    result = row(task=path)
    assert result.status == TaskResultStatus.READY
    assert result.task.name == path.rpartition(".")[2]
    with pytest.raises(ImportError, match="no longer exists"):
        result.task.func()
    result.refresh()


@pytest.mark.django_db
@pytest.mark.parametrize("body", ["1 / 0", "def broken(:", "raise SystemExit(3)"])
def test_the_result_of_a_task_whose_module_is_broken_is_readable(tmp_path, monkeypatch, body: str) -> None:
    (tmp_path / "broken_module.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("broken_module", None)
    assert row(task="broken_module.send").task.name == "send"


@pytest.mark.django_db
def test_the_result_of_a_job_whose_queue_is_gone_is_readable() -> None:
    result = row(queue="gone", priority=7)
    assert (result.task.queue_name, result.task.priority) == ("gone", 7)
    assert result.task.func is succeed.func
    result.refresh()
    assert succeed.get_result(result.id).id == result.id


@pytest.mark.django_db
def test_the_result_of_a_job_whose_backend_is_gone_is_readable() -> None:
    """Report 139."""
    assert row(backend="gone").backend == "gone"


@pytest.mark.django_db
@pytest.mark.parametrize(
    "payload",
    [[], None, 5, "text", {}, {"args": 5}, {"args": None, "kwargs": []}, {"args": {"a": 1}, "kwargs": [1]}],
)
def test_the_result_of_a_job_with_another_payload_is_readable(payload: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_pgqueue_job (task, payload) VALUES (%s, %s::jsonb) RETURNING id",
            [f"{__name__}.succeed", json.dumps(payload)],
        )
        result = task_backends["default"].get_result(str(cursor.fetchone()[0]))
    assert (result.args, result.kwargs) == ([], {})


@pytest.mark.django_db
def test_a_state_of_a_newer_version_counts_as_not_finished() -> None:
    """Report 137."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE django_pgqueue_job DROP CONSTRAINT pgqueue_job_state")
    result = row(state="paused")
    assert (result.status, result.is_finished) == (TaskResultStatus.READY, False)
    assert claim(worker=WORKER) == []


@pytest.mark.django_db(transaction=True)
def test_old_jobs_run_and_rows_of_a_newer_version_are_left_alone() -> None:
    """Report 137."""
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE django_pgqueue_job ADD COLUMN colour text NOT NULL DEFAULT 'red',"
            " DROP CONSTRAINT pgqueue_job_state"
        )
    try:
        strange, old = row(state="paused"), succeed.enqueue("x")
        run_worker()
        old.refresh()
        assert old.return_value == "x"
        assert Job.objects.get(pk=strange.id).state == "paused"
    finally:
        Job.objects.all().delete()
        names = ", ".join(f"'{state}'" for state in State.values)
        with connection.cursor() as cursor:
            cursor.execute(
                "ALTER TABLE django_pgqueue_job DROP COLUMN colour,"
                f" ADD CONSTRAINT pgqueue_job_state CHECK (state IN ({names}))"
            )


def test_the_sender_of_an_alias_follows_the_settings() -> None:
    """A receiver in a test under other settings hears of the backend that these name."""
    assert sender_of("default") is PgQueueBackend
    tasks = {"default": {"BACKEND": f"{TASKS_PACKAGE}.backends.dummy.DummyBackend"}}
    with override_settings(TASKS=tasks):
        sender = sender_of("default")
        assert sender is type(task_backends["default"])
        assert sender is not PgQueueBackend
        assert sender_of("gone") is None
    assert sender_of("default") is PgQueueBackend

"""One job through a worker: what it is given, what it may raise or return, and what is recorded."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections

from django_pgqueue import Backoff, JobContext, task
from django_pgqueue.compat import TaskResultStatus
from django_pgqueue.models import Failure, Job, Rejection
from django_pgqueue.states import Kind, State, Verdict
from testproject.shop.models import Order
from tests.races.tools import claim_one
from tests.worker.batches import run_worker, succeed
from tests.worker.held import hold

pytestmark = pytest.mark.django_db(transaction=True)


@task
def nothing() -> None:
    """Do nothing."""


def test_after_a_timeout_no_function_of_the_users_is_asked() -> None:
    """The loop decides there, and may not run a user's code. Report 48."""
    from django_pgqueue.conf import Options
    from django_pgqueue.worker.running.execution import Execution

    asked = []

    def policy(attempt: int, error: BaseException) -> timedelta:
        asked.append(attempt)
        return timedelta(days=1)

    nothing.enqueue()
    holding = hold(claim_one())
    holding.run.retry, holding.run.timeout = policy, 1.0
    backoff = Backoff(base=timedelta(seconds=7), jitter=0)
    execution = Execution(Options(backoff=backoff), on_options=lambda holding: None)
    assert execution.timed_out(holding).delay == timedelta(seconds=7)
    assert execution.crashed(holding, "gone").delay == timedelta(seconds=7)
    assert asked == []


# Through a worker


@pytest.mark.parametrize(
    "payload", ["[]", "null", "5", '{"args": 5}', '{"args": {"a": 1}}', '{"kwargs": [1]}', '{"args": null}']
)
def test_a_payload_of_another_shape_fails_its_job_and_the_worker_goes_on(payload: str) -> None:
    """Report 46."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_pgqueue_job (task, payload) VALUES (%s, %s::jsonb)",
            [f"{__name__}.succeed", payload],
        )
    good = succeed.enqueue("good")
    run_worker("--concurrency", "1")
    good.refresh()
    assert good.return_value == "good"
    bad = Job.objects.exclude(pk=good.id).get()
    assert (bad.state, bad.attempts) == (State.FAILED, 1)
    assert "the payload must be" in bad.failures.get().message


class Unprintable(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def nested(depth: int) -> ExceptionGroup:
    group = ExceptionGroup("level 0", [ValueError("core")])
    for level in range(1, depth):
        group = ExceptionGroup(f"level {level}", [group])
    return group


def recurse() -> None:
    recurse()


CAUSES: dict[str, Any] = {
    "NUL": lambda: ValueError("a\x00b"),
    "surrogate": lambda: ValueError("a\ud800b"),
    "undecodable": lambda: UnicodeDecodeError("utf-8", b"\xff\x00", 0, 1, "bad"),
    "50 MB": lambda: ValueError("x" * 50_000_000),
    "unprintable": Unprintable,
    "unserialisable": lambda: ValueError(object(), connections),
    "group": lambda: nested(50),
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "generator": GeneratorExit,
    "base": lambda: type("Odd", (BaseException,), {})("odd"),
}


@task(max_attempts=1)
def raise_cause(name: str) -> None:
    if name == "recursion":
        recurse()
    raise CAUSES[name]()


def test_whatever_a_job_raises_is_recorded_and_the_worker_goes_on() -> None:
    """Reports 29, 30, 33, 34 and 39."""
    results = {name: raise_cause.enqueue(name) for name in [*CAUSES, "recursion"]}
    good = succeed.enqueue("good")
    run_worker("--concurrency", "2")
    good.refresh()
    assert good.return_value == "good"
    for name, result in results.items():
        result.refresh()
        assert result.status == TaskResultStatus.FAILED, name
        failure = Failure.objects.get(job_id=result.id)
        assert failure.kind == Kind.ERROR, name
        assert failure.exception_class, name
        assert len(failure.message) < 10_000 and len(failure.traceback) < 100_000, name
    messages = dict(Failure.objects.values_list("job_id", "message"))
    assert messages[int(results["NUL"].id)] == "a\u2400b"
    assert messages[int(results["surrogate"].id)] == "a\ufffdb"
    assert "left out" in messages[int(results["50 MB"].id)]
    assert results["exit"].errors[0].exception_class is SystemExit


VALUES: dict[str, Any] = {
    "NUL": {"a": ["\x00"]},
    "NUL in a key": {"a": {"b\x00": 1}},
    "NaN": float("nan"),
    "Infinity": {"x": float("inf")},
    "surrogate": "\ud800",
    "set": {1, 2},
    "object": object(),
    "large": "x" * 2_000_000,
    "bytes": b"x",
}


@task(max_attempts=3)
def return_value(name: str) -> Any:
    return VALUES[name]


def test_a_return_value_that_cannot_be_stored_fails_the_job_at_once() -> None:
    """Reports 29 and 32."""
    results = {name: return_value.enqueue(name) for name in VALUES}
    good = succeed.enqueue(["good", ("tuple",)[0]])
    run_worker()
    good.refresh()
    assert good.return_value == ["good", "tuple"]
    for name, result in results.items():
        result.refresh()
        assert result.status == TaskResultStatus.FAILED, name
        assert result.attempts == 1, name
        assert result.errors[0].exception_class_path == "django_pgqueue.exceptions.InvalidPayload", name
        assert "the return value" in result.errors[0].traceback, name


@task
def count_orders() -> int:
    return Order.objects.count()


@task(takes_context=True)
def delete_own_row(context: JobContext) -> str:
    Job.objects.filter(pk=context.job_id).delete()
    return "deleted"


@task(max_attempts=1)
def use_what_is_gone() -> None:
    Order.objects.get(number="gone")


def test_a_job_whose_row_is_deleted_while_it_runs_is_one_rejection(caplog) -> None:
    """Report 38."""
    gone = delete_own_row.using(priority=1).enqueue()
    missing, good = use_what_is_gone.enqueue(), succeed.enqueue("good")
    run_worker("--concurrency", "1")
    for result in (missing, good):
        result.refresh()
    assert good.return_value == "good"
    assert missing.errors[0].exception_class_path.endswith("Order.DoesNotExist")
    rejection = Rejection.objects.get()
    assert (str(rejection.job_id), rejection.verdict) == (gone.id, Verdict.MISSING)
    assert len([record for record in caplog.records if getattr(record, "event", "") == "rejected"]) == 1


# Unknown tasks


def test_a_job_of_an_unknown_task_fails_with_its_path_and_the_others_run(tmp_path, monkeypatch) -> None:
    """Reports 40 and 103."""
    (tmp_path / "zero_division.py").write_text("1 / 0")
    (tmp_path / "syntax_error.py").write_text("def broken(:")
    monkeypatch.syspath_prepend(tmp_path)
    here = [f"{__name__}.gone", f"{__name__}.AT_ONCE"]
    paths = ["gone.tasks.send", *here, "nodots", "", "zero_division.a", "syntax_error.a"]
    jobs = [Job.objects.create(task=path, max_attempts=1) for path in paths]
    good = succeed.enqueue("good")
    run_worker("--concurrency", "1")
    good.refresh()
    assert good.return_value == "good"
    for job in jobs:
        job.refresh_from_db()
        assert job.state == State.FAILED, job.task
        failure = job.failures.get()
        assert job.task in failure.message + failure.traceback


def test_a_changed_signature_is_an_ordinary_failure() -> None:
    """Report 103."""
    result = count_orders.using(max_attempts=1).enqueue("unexpected", more=1)
    run_worker()
    result.refresh()
    assert result.errors[0].exception_class is TypeError

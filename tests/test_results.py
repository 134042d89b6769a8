"""Results as `django.tasks` defines them, and what becomes of jobs whose outcome is hard to keep."""

import json
import random
import sys
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_pgqueue import Backoff, DoNotRetry, JobContext, Snooze, task
from django_pgqueue.compat import TaskResult, TaskResultStatus, task_backends
from django_pgqueue.leases import claim, reclaim
from django_pgqueue.models import Failure, Job, Rejection
from django_pgqueue.outcomes import cancel, complete, fail, release, retry
from django_pgqueue.states import FINISHED_STATES, Kind, State, Verdict
from django_pgqueue.upkeep import exhaust
from testproject.shop.models import Order

WORKER = "somebody-1"
AT_ONCE = Backoff(base=timedelta(0), cap=timedelta(0))


def run_worker(*flags: str) -> None:
    call_command("runworker", "--batch", *flags, verbosity=0)


def run_until_nothing_waits() -> None:
    """Run workers, moving scheduled jobs to now, until every job has ended."""
    for _ in range(100):
        run_worker()
        if not Job.objects.live().exists():
            return
        Job.objects.filter(state=State.SCHEDULED).update(run_after="2000-01-01T00:00Z")
    raise AssertionError(f"still waiting: {Job.objects.live().values()}")


def note_start(kind: str, key: object) -> int:
    """Audit a start in a table, and return which start it was."""
    Order.objects.create(number=f"{random.getrandbits(64):x}", customer=f"{kind}-{key}", amount=1)
    return starts(kind, key)


def starts(kind: str, key: object) -> int:
    return Order.objects.filter(customer=f"{kind}-{key}").count()


@task
def succeed(value: Any = None) -> Any:
    return value


@task(max_attempts=1_000_000, retry=Backoff(base=timedelta(days=1), cap=timedelta(days=2)))
def fail_slowly() -> None:
    raise ValueError("no")


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
def test_the_result_of_a_task_whose_code_is_gone_is_readable_report_103(path: str) -> None:
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
def test_the_result_of_a_job_whose_backend_is_gone_is_readable_report_139() -> None:
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
def test_a_state_of_a_newer_version_counts_as_not_finished_report_137() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE django_pgqueue_job DROP CONSTRAINT pgqueue_job_state")
    result = row(state="paused")
    assert (result.status, result.is_finished) == (TaskResultStatus.READY, False)
    assert claim(worker=WORKER) == []


@pytest.mark.django_db(transaction=True)
def test_old_jobs_run_and_rows_of_a_newer_version_are_left_alone_report_137() -> None:
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


# Through a worker


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "payload", ["[]", "null", "5", '{"args": 5}', '{"args": {"a": 1}}', '{"kwargs": [1]}', '{"args": null}']
)
def test_a_payload_of_another_shape_fails_its_job_and_the_worker_goes_on_report_46(payload: str) -> None:
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


@pytest.mark.django_db(transaction=True)
def test_whatever_a_job_raises_is_recorded_and_the_worker_goes_on_reports_29_30_33_34_39() -> None:
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


@pytest.mark.django_db(transaction=True)
def test_a_return_value_that_cannot_be_stored_fails_the_job_at_once_reports_29_32() -> None:
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


def _swallow_bad_sql() -> None:
    with transaction.atomic():
        try:
            Order.objects.raw("SELECT nonsense")[0]
        except Exception:
            return


def _leave_aborted_transaction() -> None:
    transaction.set_autocommit(False)
    try:
        connection.cursor().execute("SELECT nonsense")
    except Exception:
        return


def _leave_transaction_open() -> None:
    transaction.set_autocommit(False)
    Order.objects.create(number="never committed", amount=1)


def _leave_atomic_block_open() -> None:
    transaction.atomic().__enter__()
    Order.objects.create(number="in a block", amount=1)


def _close() -> None:
    connection.close()


def _close_the_socket() -> None:
    connection.ensure_connection()
    connection.connection.close()


def _terminate() -> None:
    try:
        connection.cursor().execute("SELECT pg_terminate_backend(pg_backend_pid())")
    except Exception:
        return


DAMAGE = {
    damage.__name__: damage
    for damage in (
        _swallow_bad_sql,
        _leave_aborted_transaction,
        _leave_transaction_open,
        _leave_atomic_block_open,
        _close,
        _close_the_socket,
        _terminate,
    )
}


@task(max_attempts=2, retry=AT_ONCE, takes_context=True)
def damage_and_fail(context: JobContext, name: str) -> None:
    DAMAGE[name]()
    raise ValueError(f"attempt {context.attempt}")


@task
def count_orders() -> int:
    return Order.objects.count()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_connection_costs_its_job_an_attempt_and_the_next_job_nothing_report_35(name: str) -> None:
    bad, good = damage_and_fail.using(priority=1).enqueue(name), count_orders.enqueue()
    run_worker("--concurrency", "1")
    for result in (bad, good):
        result.refresh()
    assert (bad.status, bad.attempts) == (TaskResultStatus.FAILED, 2)
    assert ["attempt 1" in bad.errors[0].traceback, "attempt 2" in bad.errors[1].traceback] == [True, True]
    assert good.return_value == 0


@task(max_attempts=2, retry=AT_ONCE, takes_context=True)
def enqueue_a_sibling_and_fail(context: JobContext) -> str:
    sibling = enqueue_a_sibling_and_fail.using(unique_key="k").enqueue()
    assert sibling.id == str(context.job_id)
    if context.attempt == 1:
        raise ValueError("again")
    return "done"


@pytest.mark.django_db(transaction=True)
def test_a_running_job_keeps_its_key_so_that_its_retry_cannot_collide_report_36() -> None:
    result = enqueue_a_sibling_and_fail.using(unique_key="k").enqueue()
    run_until_nothing_waits()
    result.refresh()
    assert (result.return_value, result.attempts) == ("done", 2)
    assert Job.objects.count() == 1


@pytest.mark.django_db
def test_two_waiting_jobs_with_one_key_cannot_be_so_no_promotion_can_collide_report_37() -> None:
    first = succeed.using(unique_key="k", run_after=timedelta(hours=1)).enqueue()
    assert succeed.using(unique_key="k", run_after=timedelta(hours=2)).enqueue().id == first.id
    assert succeed.using(unique_key="k").enqueue().id == first.id


@pytest.mark.django_db
def test_an_operators_retry_that_would_take_a_held_key_is_refused_report_36() -> None:
    unique = succeed.using(unique_key="k", max_attempts=1)
    old = unique.enqueue()
    (lease,) = claim(worker=WORKER)
    fail(lease, ValueError("no"))
    new = unique.enqueue()
    assert new.id != old.id
    reply = retry(int(old.id))
    assert (reply.accepted, reply.message) == (False, "another live job holds its unique key")
    assert Job.objects.get(pk=old.id).state == State.FAILED


@task(takes_context=True)
def delete_own_row(context: JobContext) -> str:
    Job.objects.filter(pk=context.job_id).delete()
    return "deleted"


@task(max_attempts=1)
def use_what_is_gone() -> None:
    Order.objects.get(number="gone")


@pytest.mark.django_db(transaction=True)
def test_a_job_whose_row_is_deleted_while_it_runs_is_one_rejection_report_38(caplog) -> None:
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


# Attempts


@task(retry=AT_ONCE)
def audit_and_fail(key: int) -> None:
    note_start("fail", key)
    raise ValueError("no")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("max_attempts", [1, 2, 3])
def test_a_job_that_always_fails_starts_exactly_max_attempts_times_report_42(max_attempts: int) -> None:
    result = audit_and_fail.using(max_attempts=max_attempts).enqueue(1)
    run_until_nothing_waits()
    result.refresh()
    assert starts("fail", 1) == max_attempts == result.attempts == len(result.errors)
    assert Job.objects.get().attempts == max_attempts


@pytest.mark.django_db
@pytest.mark.parametrize("max_attempts", [1, 2, 3])
def test_an_attempt_counts_when_it_is_claimed_so_a_killed_worker_uses_it_up_reports_8_41(
    max_attempts: int,
) -> None:
    succeed.using(max_attempts=max_attempts).enqueue()
    claims = len(claim(worker="w-0"))
    for number in range(1, 6):
        Job.objects.running().update(lease_until="2000-01-01T00:00Z")
        exhaust()
        claims += len(reclaim(worker=f"w-{number}"))
    job = Job.objects.get()
    assert (claims, job.attempts, job.state) == (max_attempts, max_attempts, State.FAILED)
    assert [failure.kind for failure in job.failures.all()] == [Kind.LEASE_EXPIRED] * max_attempts


@pytest.mark.django_db(transaction=True)
def test_a_backoff_from_attempt_5000_is_clamped_and_cannot_fail_report_44() -> None:
    fail_slowly.enqueue()
    Job.objects.update(attempts=5000)
    run_worker()
    job = Job.objects.get()
    assert (job.state, job.attempts) == (State.SCHEDULED, 5001)
    assert timedelta(days=1) <= job.run_after - job.last_attempted_at < timedelta(days=2, seconds=10)


@task(takes_context=True, max_attempts=1)
def snooze_for_ever(context: JobContext) -> None:
    raise Snooze(timedelta.max)


@pytest.mark.django_db(transaction=True)
def test_a_snooze_without_end_is_clamped_report_44() -> None:
    snooze_for_ever.enqueue()
    run_worker()
    job = Job.objects.get()
    assert (job.state, job.attempts, job.failures.count()) == (State.SCHEDULED, 0, 0)
    assert job.run_after.year < 2100


@pytest.mark.django_db
def test_a_delay_without_end_is_clamped_report_44() -> None:
    succeed.enqueue()
    (lease,) = claim(worker=WORKER)
    assert fail(lease, ValueError("no"), delay=timedelta.max) == Verdict.ACCEPTED
    assert Job.objects.get().run_after.year < 2100


def _raising_policy(attempt: int, error: BaseException) -> timedelta | None:
    raise SystemExit("a policy of the user's")


def _nonsense_policy(attempt: int, error: BaseException) -> Any:
    return float("inf")


def _longest_policy(attempt: int, error: BaseException) -> timedelta | None:
    return timedelta.max


def _past_policy(attempt: int, error: BaseException) -> timedelta | None:
    return timedelta(days=-9)


@task(max_attempts=2, retry=_raising_policy)
def with_raising_policy() -> None:
    raise ValueError("no")


@task(max_attempts=2, retry=_nonsense_policy)
def with_nonsense_policy() -> None:
    raise ValueError("no")


@task(max_attempts=2, retry=_longest_policy)
def with_longest_policy() -> None:
    raise ValueError("no")


@task(max_attempts=2, retry=_past_policy)
def with_past_policy() -> None:
    raise ValueError("no")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "failing", [with_raising_policy, with_nonsense_policy, with_longest_policy, with_past_policy]
)
def test_a_retry_policy_cannot_fail_nor_name_the_past_report_44(failing) -> None:
    result = failing.enqueue()
    run_until_nothing_waits()
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 2)


@task(max_attempts=9, retry=AT_ONCE, no_retry=(KeyError,))
def fail_for_good(how: str) -> None:
    note_start("good", how)
    if how == "DoNotRetry":
        raise DoNotRetry("a permanent failure")
    raise {}["missing"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["DoNotRetry", "no_retry"])
def test_a_permanent_failure_ends_the_job_at_once_report_49(how: str) -> None:
    result = fail_for_good.enqueue(how)
    run_until_nothing_waits()
    result.refresh()
    assert (result.status, result.attempts, starts("good", how)) == (TaskResultStatus.FAILED, 1, 1)


@task(max_attempts=1, takes_context=True)
def snooze_twice(context: JobContext, key: int) -> str:
    if note_start("snooze", key) < 3:
        raise Snooze(timedelta(hours=1))
    return f"attempt {context.attempt} at generation {context.generation}"


@pytest.mark.django_db(transaction=True)
def test_a_snooze_uses_up_no_attempt() -> None:
    result = snooze_twice.enqueue(1)
    run_worker()
    job = Job.objects.get()
    assert (job.state, job.attempts, job.generation) == (State.SCHEDULED, 0, 1)
    assert timedelta(minutes=59) < job.run_after - job.last_attempted_at < timedelta(minutes=61)
    run_until_nothing_waits()
    result.refresh()
    assert result.return_value == "attempt 1 at generation 3"
    assert result.errors == []


def assert_every_job_has_ended_or_can_be_claimed_again() -> None:
    """Check the invariant of reports 8, 11 and 46: no state is neither claimable nor terminal."""
    for job in Job.objects.all():
        if job.state in FINISHED_STATES:
            assert job.finished_at is not None and job.lease_until is None
        elif job.state == State.RUNNING:
            assert job.lease_until is not None
        else:
            assert job.attempts < job.max_attempts and job.lease_until is None


@pytest.mark.django_db(transaction=True)  # a rejection commits on its own, also inside a test's transaction
@pytest.mark.parametrize("seed", range(5))
def test_no_sequence_of_transitions_strands_a_job_report_46(seed: int) -> None:
    chance = random.Random(seed)
    for number in range(12):
        succeed.using(max_attempts=chance.randint(1, 3)).enqueue(number)
    held: list[Any] = []
    moves: list[Any] = [
        lambda: held.extend(claim(worker=WORKER, limit=2)),
        lambda: held.extend(reclaim(worker=WORKER, limit=2)),
        lambda: held and complete(chance.choice(held)),
        lambda: held and fail(chance.choice(held), ValueError("no"), delay=timedelta(0)),
        lambda: held and fail(chance.choice(held), ValueError("no"), delay=timedelta(hours=1)),
        lambda: held and fail(chance.choice(held), ValueError("no")),
        lambda: held and release(chance.choice(held)),
        lambda: held and release(chance.choice(held), delay=timedelta(hours=1)),
        lambda: Job.objects.running().update(lease_until="2000-01-01T00:00Z"),
        lambda: Job.objects.filter(state=State.SCHEDULED).update(run_after="2000-01-01T00:00Z"),
        exhaust,
        lambda: cancel(chance.choice(ids)),
        lambda: retry(chance.choice(ids)),
    ]
    ids = list(Job.objects.values_list("pk", flat=True))
    for _ in range(120):
        chance.choice(moves)()
        assert_every_job_has_ended_or_can_be_claimed_again()


@task(takes_context=True, retry=AT_ONCE)
def mixed(context: JobContext, key: int, fate: str) -> int:
    number = note_start("mixed", key)
    if fate == "retries" and number < 3:
        raise ValueError("again")
    if fate in ("fails", "exits"):
        raise ValueError("no") if fate == "fails" else SystemExit(1)
    if fate == "permanent":
        raise DoNotRetry("no")
    if fate == "unstorable":
        return {1}  # type: ignore[return-value]
    return number


@pytest.mark.django_db(transaction=True)
def test_attempts_equal_the_audited_starts_of_300_mixed_jobs_report_47() -> None:
    fates = ["succeeds", "retries", "fails", "exits", "permanent", "unstorable"]
    for key in range(300):
        mixed.using(max_attempts=1 + key % 4).enqueue(key, fates[key % len(fates)])
    run_until_nothing_waits()
    counted = Counter(Order.objects.values_list("customer", flat=True))
    for job in Job.objects.all():
        key, fate = job.payload["args"]
        assert counted[f"mixed-{key}"] == job.attempts == job.generation == len(job.worker_ids), fate
        assert job.attempts <= job.max_attempts
        assert job.failures.count() == job.attempts - (job.state == State.DONE)
        expected = {"succeeds": 1, "permanent": 1, "unstorable": 1}.get(fate, job.max_attempts)
        assert job.attempts == (min(3, expected) if fate == "retries" else expected)
    assert_every_job_has_ended_or_can_be_claimed_again()


# Unknown tasks


@pytest.mark.django_db(transaction=True)
def test_a_job_of_an_unknown_task_fails_with_its_path_and_the_others_run_reports_40_103(
    tmp_path, monkeypatch
) -> None:
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


@pytest.mark.django_db(transaction=True)
def test_a_changed_signature_is_an_ordinary_failure_report_103() -> None:
    result = count_orders.using(max_attempts=1).enqueue("unexpected", more=1)
    run_worker()
    result.refresh()
    assert result.errors[0].exception_class is TypeError


# Counters at their edge


@pytest.mark.django_db(transaction=True)
def test_a_row_at_the_edge_of_its_counters_stops_no_other_job_report_160() -> None:
    good = succeed.enqueue("good")
    columns: list[dict[str, Any]] = [
        {"generation": 2**63 - 1},
        {"generation": 2**63 - 2},
        {"attempts": 2**31 - 2, "max_attempts": 2**31 - 1},
        {"pk": 2**63 - 1},
        {"priority": 100},
        {"priority": -100},
    ]
    jobs = [
        Job.objects.create(task=f"{__name__}.succeed", **{"max_attempts": 1, **values}) for values in columns
    ]
    run_worker("--concurrency", "2")
    good.refresh()
    assert good.return_value == "good"
    states = [Job.objects.get(pk=job.pk).state for job in jobs]
    assert states == [State.READY] * 2 + [State.DONE] * 4


@pytest.mark.django_db
def test_ids_and_generations_are_64_bits_wide_report_160() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name, column_name FROM information_schema.columns"
            " WHERE table_name LIKE 'django_pgqueue_%%' AND data_type IN ('integer', 'smallint')"
        )
        narrow = set(cursor.fetchall())
    assert narrow == {
        ("django_pgqueue_job", "attempts"),
        ("django_pgqueue_job", "max_attempts"),
        ("django_pgqueue_job", "priority"),
        ("django_pgqueue_worker", "pid"),
        ("django_pgqueue_worker", "concurrency"),
        ("django_pgqueue_worker", "running"),
    }

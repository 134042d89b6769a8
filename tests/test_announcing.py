"""The signals of `django.tasks`: each is sent, with the right sender and result, whatever a receiver does."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import django
import pytest
from django.core.management import call_command
from django.db import transaction
from django.dispatch import Signal

from django_pgqueue import Backoff, JobContext, task
from django_pgqueue.backend import PgQueueBackend
from django_pgqueue.compat import TaskResultStatus, task_enqueued, task_finished, task_started
from django_pgqueue.leases import claim
from django_pgqueue.models import Job
from django_pgqueue.outcomes import complete
from django_pgqueue.signals import completion_rejected, job_failed
from django_pgqueue.states import Action, Kind, State, Verdict
from testproject.shop.models import Order

SIGNALS = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}
AT_ONCE = Backoff(base=timedelta(0), cap=timedelta(0))
Listen = Callable[[Signal, Callable[..., None]], None]


@task
def double(number: int) -> int:
    return number * 2


@task(max_attempts=2, retry=AT_ONCE)
def always_fail() -> None:
    raise LookupError("no")


def run_worker() -> None:
    call_command("runworker", "--batch", verbosity=0)


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Give a function that connects a receiver until the test ends."""
    with ExitStack() as receivers:

        def connect(signal: Signal, receiver: Callable[..., None]) -> None:
            signal.connect(receiver, weak=False)
            receivers.callback(signal.disconnect, receiver)

        yield connect


@pytest.fixture
def told(listen: Listen) -> list[tuple[str, type, Any]]:
    """Return the list that every signal of `django.tasks` is noted in."""
    notes: list[tuple[str, type, Any]] = []
    for name, signal in SIGNALS.items():

        def note(sender: type, task_result: Any, name: str = name, **kwargs: Any) -> None:
            notes.append((name, sender, task_result))

        listen(signal, note)
    return notes


@pytest.mark.django_db(transaction=True)
def test_the_signals_of_django_tasks_are_sent_by_the_backend_class(told) -> None:
    """Report 138."""
    result = double.enqueue(21)
    run_worker()
    assert [(name, sender) for name, sender, _ in told] == [
        ("enqueued", PgQueueBackend),
        ("started", PgQueueBackend),
        ("finished", PgQueueBackend),
    ]
    enqueued, started, finished = (task_result for _, _, task_result in told)
    assert {enqueued.id, started.id, finished.id} == {result.id}
    assert [enqueued.status, started.status, finished.status] == [
        TaskResultStatus.READY,
        TaskResultStatus.RUNNING,
        TaskResultStatus.SUCCESSFUL,
    ]
    assert (enqueued.attempts, started.attempts, finished.attempts) == (0, 1, 1)
    assert (finished.return_value, finished.args, finished.task.func) == (42, [21], double.func)
    assert finished.finished_at >= started.started_at >= enqueued.enqueued_at
    assert started.last_attempted_at == finished.last_attempted_at is not None


@pytest.mark.django_db(transaction=True)
def test_a_failed_job_has_finished_once_although_it_started_twice(told, listen) -> None:
    """Report 138."""
    failed: list[dict[str, Any]] = []
    listen(job_failed, lambda **kwargs: failed.append(kwargs))
    result = always_fail.enqueue()
    run_worker()
    assert [name for name, _, _ in told] == ["enqueued", "started", "started", "finished"]
    finished = told[-1][2]
    assert (finished.status, finished.attempts) == (TaskResultStatus.FAILED, 2)
    assert finished.errors[-1].exception_class is LookupError
    (notice,) = failed
    assert notice["sender"] is Job
    assert (str(notice["job_id"]), notice["generation"], notice["queue"]) == (result.id, 2, "default")
    assert (notice["task"], notice["kind"]) == (always_fail.module_path, Kind.ERROR)


def refuse(**kwargs: Any) -> None:
    raise RuntimeError("a receiver of the user's")


@pytest.mark.django_db(transaction=True)
def test_a_receiver_that_raises_changes_nothing(listen: Listen, told) -> None:
    """Report 138."""
    for signal in (*SIGNALS.values(), job_failed):
        listen(signal, refuse)
    with transaction.atomic():
        good, bad = double.enqueue(21), always_fail.enqueue()
        Order.objects.create(number="the caller's own", amount=1)
    run_worker()
    for result in (good, bad):
        result.refresh()
    assert (good.status, good.return_value, good.errors) == (TaskResultStatus.SUCCESSFUL, 42, [])
    assert (bad.status, bad.attempts) == (TaskResultStatus.FAILED, 2)
    assert Order.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_receiver_that_breaks_its_connection_changes_nothing(listen: Listen) -> None:
    """Report 138."""

    def break_connection(**kwargs: Any) -> None:
        from django.db import connection

        if connection.in_atomic_block:
            return
        transaction.set_autocommit(False)
        connection.cursor().execute("SELECT nonsense")

    listen(task_started, break_connection)
    listen(task_finished, break_connection)
    results = [double.enqueue(number) for number in range(5)]
    run_worker()
    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == [0, 2, 4, 6, 8]


@pytest.mark.django_db(transaction=True)
def test_a_logging_handler_that_raises_changes_nothing(listen: Listen) -> None:
    """Report 138."""

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("a handler of the user's")

    for signal in (*SIGNALS.values(), job_failed):  # Django logs what a receiver raised
        listen(signal, refuse)
    names = ("django_pgqueue", "django.tasks", "django_tasks", "django.dispatch")
    loggers = [logging.getLogger(name) for name in names]
    handler = Broken()
    for logger in loggers:
        logger.addHandler(handler)
    try:
        good, bad = double.enqueue(21), always_fail.enqueue()
        run_worker()
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
    for result in (good, bad):
        result.refresh()
    assert good.return_value == 42
    assert (bad.status, bad.attempts) == (TaskResultStatus.FAILED, 2)


@task(takes_context=True)
def be_overtaken(context: JobContext) -> str:
    """Lose the job to another claim while running."""
    Job.objects.filter(pk=context.job_id).update(lease_until="2000-01-01T00:00Z")
    Job.objects.filter(pk=context.job_id).update(
        generation=context.generation + 1, lease_until="2999-01-01T00:00Z"
    )
    return "too late"


@pytest.mark.django_db(transaction=True)
def test_a_refused_completion_is_told_and_is_no_finish(listen: Listen, told) -> None:
    rejected: list[dict[str, Any]] = []
    listen(completion_rejected, lambda **kwargs: rejected.append(kwargs))
    listen(completion_rejected, refuse)
    result = be_overtaken.enqueue()
    run_worker()
    assert [name for name, _, _ in told] == ["enqueued", "started"]
    (notice,) = rejected
    assert (str(notice["job_id"]), notice["generation"], notice["current_generation"]) == (result.id, 1, 2)
    assert (notice["action"], notice["verdict"]) == (Action.COMPLETE, Verdict.SUPERSEDED)
    assert Job.objects.get().state == State.RUNNING


@pytest.mark.django_db
def test_the_enqueued_signal_is_sent_inside_the_callers_transaction(told) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        double.enqueue(1)
        assert [name for name, _, _ in told] == ["enqueued"]
        raise ZeroDivisionError


@pytest.mark.django_db
def test_the_lower_level_sends_no_signals_of_django_tasks(told) -> None:
    double.enqueue(1)
    (lease,) = claim(worker="w-1")
    complete(lease, 2)
    assert [name for name, _, _ in told] == ["enqueued"]


@pytest.mark.django_db(transaction=True)
def test_djangos_own_log_lines_appear(caplog) -> None:
    name = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"
    caplog.set_level(logging.DEBUG, logger=name)
    double.enqueue(1)
    always_fail.enqueue()
    run_worker()
    lines = [record.getMessage() for record in caplog.records if record.name == name]
    assert len([line for line in lines if "enqueued" in line]) == 2
    assert len([line for line in lines if "state=SUCCESSFUL" in line]) == 1
    (failed,) = [record for record in caplog.records if "state=FAILED" in record.getMessage()]
    assert failed.levelno == logging.ERROR and failed.exc_info[0] is LookupError


@pytest.mark.django_db(transaction=True)
def test_task_finished_is_also_sent_for_a_job_that_its_last_lease_s_end_has_failed():
    """Whoever waits for the end of a job hears of every end. Reports 8 and 138."""
    from django_pgqueue import leases
    from django_pgqueue.backend import PgQueueBackend
    from django_pgqueue.compat import task_finished
    from django_pgqueue.models import Job
    from django_pgqueue.upkeep import Exhaust

    heard = []

    def note(sender, task_result, **kwargs):
        heard.append((sender, task_result.id, str(task_result.status), len(task_result.errors)))

    job = Job.objects.create(task="no.such.task", max_attempts=1)
    leases.claim(worker="A")
    Job.objects.update(lease_until="2020-01-01T00:00:00Z")
    task_finished.connect(note)
    try:
        assert Exhaust(using="default").run_once() == 1
    finally:
        task_finished.disconnect(note)
    assert heard == [(PgQueueBackend, str(job.pk), "FAILED", 1)]

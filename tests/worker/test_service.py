"""A thread of the worker: it survives the loss of its session, and its waits and failures are told apart."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

import pytest
from django.db import connection, connections

from django_pgqueue.worker import service as module
from django_pgqueue.worker.service import Service

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def service() -> Iterator[Service]:
    """Give a service whose session is this thread's; the test's own connection comes back afterwards."""
    own = connections["default"]
    service = Service("tester", name="a service under test", using="default")
    with service.session():
        yield service
    connections["default"] = own


def ask() -> int:
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def end_session(pid: int) -> None:
    """End another session, and wait until it is gone."""
    parameters = connection.get_connection_params()
    with connection.Database.connect(**{**parameters, "cursor_factory": None}) as other:
        other.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])


def test_the_session_says_who_it_is_and_is_closed_at_the_end() -> None:
    own = connections["default"]
    service = Service("tester", name="a service under test", using="default")
    with service.session():
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT current_setting('application_name')")
            assert cursor.fetchone() == ("a service under test",)
        raw = connections["default"].connection
    assert raw.closed
    connections["default"] = own


def test_after_the_loss_of_its_session_the_next_attempt_has_a_new_one(service: Service) -> None:
    pids = []
    assert service.attempt(lambda: pids.append(ask())) is None
    before = service.connection
    end_session(pids[0])
    for failures in (1, 2):
        error = service.attempt(lambda: pids.append(ask())) if failures == 1 else service.attempt(fail)
        assert error is not None
        assert service.failures == failures
    assert service.connection is not before
    assert service.connection is connections["default"]
    assert service.attempt(lambda: pids.append(ask())) is None
    assert service.failures == 0
    assert len(set(pids)) == 2


def fail() -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT 1 / 0")


def test_what_is_no_fault_of_the_database_is_not_survived(service: Service) -> None:
    with pytest.raises(ZeroDivisionError):
        service.attempt(lambda: 1 / 0)
    assert service.busy_since is None
    assert service.failures == 0


def test_a_service_is_busy_during_an_attempt_but_not_in_a_wait_that_it_means(service: Service) -> None:
    seen = []

    def work() -> None:
        seen.append(service.busy_since is not None)
        with service.idle():
            seen.append(service.busy_since is not None)
        seen.append(service.busy_since is not None)

    service.attempt(work)
    assert seen == [True, False, True]
    assert service.busy_since is None


def test_a_statement_that_does_not_return_is_cut(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STUCK_SECONDS", 0.3)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            service.cut_if_stuck()

    def sleep_long() -> None:
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")

    pid = ask()
    watcher = threading.Thread(target=watch)
    watcher.start()
    since = time.monotonic()
    error = service.attempt(sleep_long)
    over.set()
    watcher.join()
    assert error is not None
    assert time.monotonic() - since < 30
    assert service.attempt(ask) is None
    end_session(pid)  # the server has not noticed


def test_failures_are_logged_now_and_then_and_waited_for_longer_and_longer(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    waits = []
    with caplog.at_level(logging.WARNING, logger="django_pgqueue"):
        for _ in range(12):
            error = service.attempt(fail)
            assert error is not None
            service.warn("tester_failed", "Testing failed (%s)", error)
            waits.append(service.retry_in(1.0))
    assert [record.getMessage() for record in caplog.records] == ["Testing failed (division by zero)"] * 2
    assert {record.event for record in caplog.records} == {"tester_failed"}
    assert waits[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert waits[5:] == [1.0] * 7


def test_a_wait_ends_with_a_stop_and_says_whether_it_was_woken() -> None:
    service = Service("tester")
    assert not service.wait(0.01)
    service.woken.set()
    assert service.wait(60)
    service.stop()
    assert service.stopping
    assert service.wait(60)

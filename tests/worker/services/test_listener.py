"""The worker's listener: it wakes an idle worker, comes back, and knows where it cannot be."""

from __future__ import annotations

import logging
import threading
from unittest import mock

import psycopg
import pytest

from django_pgqueue.worker.services.listener import Listener
from tests.processes.stage import Stage
from tests.worker.waking import QUICK_SECONDS, be_idle, enqueued, pick_up_seconds

pytestmark = pytest.mark.django_db(transaction=True)

READY, SCHEDULED = "django_pgqueue_ready", "django_pgqueue_scheduled"


def test_an_idle_worker_that_listens_is_quick_also_after_its_listener_was_lost(stage: Stage) -> None:
    worker = stage.worker("--interval", "30", "--lease", "120")
    stage.wait(lambda: len(stage.sessions(worker, "listener")) == 1, "it listens")
    be_idle(stage)
    assert pick_up_seconds(stage, enqueued()) < QUICK_SECONDS

    (before,) = stage.sessions(worker, "listener")
    stage.terminate(worker, "listener")
    stage.wait(
        lambda: [row["pid"] != before["pid"] for row in stage.sessions(worker, "listener")] == [True],
        "it listens again",
    )
    be_idle(stage)
    assert pick_up_seconds(stage, enqueued()) < QUICK_SECONDS
    assert worker.output.count("Listening failed") == 1
    worker.stop()
    assert worker.wait() == 0


def test_behind_a_pooler_the_listener_ends_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    """The process that a pooler's greeting names is not the one that answers."""
    caplog.set_level(logging.INFO, logger="django_pgqueue")
    woken: list[str] = []
    listener = Listener(using="default", name="a listener", wake={READY: lambda: woken.append(READY)})
    with mock.patch.object(psycopg.ConnectionInfo, "backend_pid", 1):
        thread = threading.Thread(target=listener.run, daemon=True)
        thread.start()
        thread.join(20)
    assert not thread.is_alive()
    assert "polling only" in caplog.text
    assert woken == []

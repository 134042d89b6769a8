"""What a worker does by itself besides running jobs."""

from __future__ import annotations

import pytest

from tests.upkeep.rows import DAY, ended, left

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_worker_prunes_by_itself(settings):
    ended("done", 2 * DAY, 3)
    from django_pgqueue.conf import Options
    from django_pgqueue.lab.waiting import until
    from django_pgqueue.worker.settings import WorkerSettings
    from django_pgqueue.worker.worker import Worker as RunningWorker
    from tests.races.tools import PATIENCE, InThread

    worker = RunningWorker(WorkerSettings(using="default", options=Options(), concurrency=1, listen=False))
    running = InThread(worker.run)
    try:
        until(lambda: not left(), "the worker has pruned", within=PATIENCE)
    finally:
        worker.stop()
    assert running.result() == 0

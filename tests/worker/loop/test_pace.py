"""When the loop looks for jobs without being told."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.processes.stage import Stage
from tests.worker.waking import QUICK_SECONDS, be_idle, enqueued, pick_up_seconds

pytestmark = pytest.mark.django_db(transaction=True)


def test_without_a_listener_or_without_a_hint_a_job_is_found_by_the_poll(stage: Stage) -> None:
    """One worker does not listen; the other does, and is sent no hint by plain SQL."""
    flags = ("--interval", "1", "--lease", "120", "--queue-name")
    deaf = stage.worker(*flags, "default", "--no-listen")
    listening = stage.worker(*flags, "reports")
    be_idle(stage)
    assert stage.sessions(deaf, "listener") == []
    by_deaf, by_listening = enqueued(), stage.enqueue("noop", queue="reports")
    assert pick_up_seconds(stage, by_deaf) < 1 + QUICK_SECONDS
    assert pick_up_seconds(stage, by_listening) < 1 + QUICK_SECONDS
    for worker in (deaf, listening):
        worker.stop()
    assert [deaf.wait(), listening.wait()] == [0, 0]


@pytest.mark.parametrize("listen", [True, False], ids=["listening", "polling"])
def test_scheduled_jobs_start_on_time_although_the_worker_polls_rarely(stage: Stage, listen: bool) -> None:
    """The poll comes every five seconds. A nearer job than the one that is waited for is not late either."""
    if not listen:  # it knows of what was there when it last looked
        jobs = [enqueued(run_after=timedelta(seconds=3 + step)) for step in (0, 0.3, 0.6)]
    worker = stage.worker("--interval", "5", "--lease", "120", *([] if listen else ["--no-listen"]))
    if listen:
        stage.wait(lambda: len(stage.sessions(worker, "listener")) == 1, "it listens")
        jobs = [enqueued(run_after=timedelta(seconds=seconds)) for seconds in (60, 3, 2, 1)][1:]
    late = []
    for job in jobs:
        row = stage.wait_state(job, "done")
        late.append((row["started_at"] - row["run_after"]).total_seconds())
    assert min(late) >= 0
    assert min(late) < 0.2, late
    assert max(late) < QUICK_SECONDS, late

"""How soon a job that was just enqueued is picked up by an idle worker, which polls ever less often."""

from __future__ import annotations

from typing import Any

from django_pgqueue import hints
from tests.processes.stage import Stage
from tests.processes.tasks import noop

IDLE_SECONDS = 3.0
QUICK_SECONDS = 1.0  # a few milliseconds on an idle machine


def pick_up_seconds(stage: Stage, job: int) -> float:
    row = stage.wait_state(job, "done")
    return (row["started_at"] - row["enqueued_at"]).total_seconds()


def be_idle(stage: Stage) -> None:
    stage.stays(lambda: stage.states().get("running") is None, IDLE_SECONDS, "the workers are idle")


def enqueued(**options: Any) -> int:
    hints._sent_at.clear()
    return int(noop.using(**options).enqueue().id)

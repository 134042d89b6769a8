"""One job on one thread."""

from __future__ import annotations

import pytest

from tests.processes.stage import Stage
from tests.worker.tools import LONG, Start, effects_of, enqueue, is_running


@pytest.mark.usefixtures("leftovers")
@pytest.mark.parametrize("how", ["returns", "raises"])
def test_a_fork_that_comes_back_from_its_task_ends_there(stage: Stage, start: Start, how: str) -> None:
    """The original's ending is the only one, and its connection is still its own."""
    worker = start(*LONG, "--concurrency", "1", settings={"database": {"CONN_MAX_AGE": None}})
    for _ in range(3):
        job = enqueue(stage, "fork_and_go_on", how)
        row = stage.wait_state(job, "done")
        note = stage.wait_note("started", job)
        assert (row["result"], row["generation"], row["attempts"]) == (note["pid"], 1, 1)
        assert effects_of(stage, job) == ["before the fork"]
        stage.wait(lambda note=note: not is_running(note["left"]), "the copy has ended")
    assert stage.count("django_pgqueue_failure") == stage.count("django_pgqueue_rejection") == 0
    assert len({note["pid"] for note in stage.notes("started")}) == 1  # nothing had to be replaced
    worker.stop()
    assert worker.wait() == 0, worker.output

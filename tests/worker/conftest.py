"""Real workers with either pool."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest

from tests.processes.stage import Stage, Worker
from tests.worker.tools import Start


@pytest.fixture(params=["threads", "processes"])
def pool(request: pytest.FixtureRequest) -> str:
    """Return the pool under test: the same behaviour is expected of both."""
    return request.param


@pytest.fixture
def start(stage: Stage, pool: str, effects: None) -> Start:
    """Give a function that starts a worker with the pool under test."""

    def start(*flags: str, **given: Any) -> Worker:
        return stage.worker("--pool", pool, *flags, **given)

    return start


@pytest.fixture
def effects(stage: Stage) -> None:
    """Make the table that stands for what jobs do to the database."""
    stage.sql("DROP TABLE IF EXISTS pool_effect")
    stage.sql("CREATE TABLE pool_effect (job_id bigint, generation bigint, text text)")


@pytest.fixture
def leftovers(stage: Stage) -> Iterator[None]:
    """Kill at last the processes that jobs have made, and noted as `left`."""
    yield
    for note in stage.notes("started"):
        with suppress(psutil.Error):  # it has ended
            process = psutil.Process(note["left"])
            if process.environ().get("PROCESS_FILES") == str(stage.folder):  # no other one under its number
                process.kill()
                process.wait(10)

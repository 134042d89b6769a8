"""A stage for real workers with either pool."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.processes.conftest import stage
from tests.processes.stage import Stage, Worker

__all__ = ["stage"]

Start = Callable[..., Worker]


@pytest.fixture(params=["threads", "processes"])
def pool(request: pytest.FixtureRequest) -> str:
    """Return the pool under test: the same behaviour is expected of both."""
    return request.param


@pytest.fixture
def start(stage: Stage, pool: str, effects: None) -> Iterator[Start]:
    """Give a function that starts a worker with the pool under test."""

    def start(*flags: str, **given: Any) -> Worker:
        return stage.worker("--pool", pool, *flags, **given)

    yield start


@pytest.fixture
def effects(stage: Stage) -> None:
    """Make the table that stands for what jobs do to the database."""
    stage.sql("DROP TABLE IF EXISTS pool_effect")
    stage.sql("CREATE TABLE pool_effect (job_id bigint, generation bigint, text text)")

"""A stage for real workers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.stage import Stage


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    """Give a stage on the test database; its workers are killed and reaped at last."""
    stage = Stage(database_url, tmp_path / "stage")
    try:
        yield stage
    finally:
        stage.close()


@pytest.fixture
def audit_table(stage: Stage) -> None:
    """Make a table in which every start of a job leaves a row; its key refuses a second one."""
    stage.sql("DROP TABLE IF EXISTS process_audit")
    stage.sql(
        "CREATE TABLE process_audit (job_id bigint, generation bigint, pid int, PRIMARY KEY (job_id, generation))"
    )

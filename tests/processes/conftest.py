"""What the tests with real workers write into."""

import pytest

from tests.processes.stage import Stage


@pytest.fixture
def audit_table(stage: Stage) -> None:
    """Make a table in which every start of a job leaves a row; its key refuses a second one."""
    stage.sql("DROP TABLE IF EXISTS process_audit")
    stage.sql(
        "CREATE TABLE process_audit (job_id bigint, generation bigint, pid int, PRIMARY KEY (job_id, generation))"
    )

"""Many workers, many jobs, and no job twice."""

import time
from collections.abc import Iterator

import pytest

from tests.processes.stage import Stage, Worker

LEDGER = """
    CREATE TABLE process_ledger (
        id bigint GENERATED ALWAYS AS IDENTITY, job_id bigint, old_state text, new_state text,
        old_generation bigint, new_generation bigint
    );
    CREATE FUNCTION process_ledger_note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO process_ledger (job_id, old_state, new_state, old_generation, new_generation)
        VALUES (NEW.id, OLD.state, NEW.state, OLD.generation, NEW.generation);
        RETURN NULL;
    END $$;
    CREATE TRIGGER process_ledger AFTER UPDATE ON django_pgqueue_job FOR EACH ROW
    WHEN ((OLD.state, OLD.generation) IS DISTINCT FROM (NEW.state, NEW.generation))
    EXECUTE FUNCTION process_ledger_note();
"""


@pytest.fixture
def ledger(stage: Stage) -> Iterator[None]:
    """Keep every transition of every job, as the database saw it."""
    stage.sql("DROP TABLE IF EXISTS process_ledger")
    stage.sql("DROP FUNCTION IF EXISTS process_ledger_note CASCADE")
    with stage.connect() as session:
        session.execute(LEDGER)
    yield
    stage.close()
    stage.sql("DROP FUNCTION process_ledger_note CASCADE")
    stage.sql("DROP TABLE process_ledger")


@pytest.mark.usefixtures("audit_table")
def test_every_job_starts_exactly_once_among_three_workers(stage: Stage) -> None:
    """Report 25."""
    kept = {"database": {"CONN_MAX_AGE": None}}
    workers = [stage.worker("--lease", "30", settings=kept, wait=False) for _ in range(3)]
    stage.wait_working(*workers)
    stage.enqueue_many("audit", 3000)

    stage.wait_all_done(3000)

    assert stage.count("process_audit") == 3000
    assert stage.count("django_pgqueue_job", "generation = 1 AND attempts = 1") == 3000
    assert stage.count("django_pgqueue_failure") == stage.count("django_pgqueue_rejection") == 0
    shares = stage.sql("SELECT count(*) AS n FROM process_audit GROUP BY pid")
    assert len(shares) == 3
    for worker in workers:
        assert len(worker.output.splitlines()) == 1, worker.output  # its greeting, and no error


@pytest.mark.parametrize("isolation", ["REPEATABLE_READ", "SERIALIZABLE"])
def test_the_isolation_level_of_the_project_neither_loses_nor_repeats_a_job(
    stage: Stage, isolation: str
) -> None:
    """Report 134."""
    workers = [stage.worker("--lease", "30", settings={"isolation": isolation}, wait=False) for _ in range(2)]
    stage.wait_working(*workers)
    stage.enqueue_many("noop", 500)

    stage.wait_all_done(500)

    assert stage.count("django_pgqueue_job", "generation = 1 AND attempts = 1") == 500
    for worker in workers:
        assert len(worker.output.splitlines()) == 1, worker.output


def freeze_with_jobs(stage: Stage, worker: Worker) -> None:
    """Freeze the worker in a moment in which it holds jobs."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        worker.freeze()
        if held_by(stage, worker):
            return
        worker.thaw()
    raise AssertionError(f"the worker never holds a job; {stage.states()}\n{stage.logs()}")


def held_by(stage: Stage, worker: Worker) -> int:
    return stage.count("django_pgqueue_job", "state = 'running' AND worker_ids[generation] = %s", worker.id)


@pytest.mark.usefixtures("ledger")
@pytest.mark.slow
def test_ten_thousand_jobs_through_two_workers_one_of_them_killed_three_times(stage: Stage) -> None:
    portion, portions = 2500, 4
    number = portion * portions
    flags = ("--concurrency", "20", "--lease", "3")
    doomed, survivor = (stage.worker(*flags, name=name, wait=False) for name in ("doomed", "survivor"))
    lost = 0
    for kill in range(portions):
        stage.wait_working(doomed, survivor)
        stage.enqueue_many("noop", portion)
        if kill == 0:
            continue
        freeze_with_jobs(stage, doomed)
        doomed.kill()
        stage.wait(lambda worker=doomed: not stage.sessions(worker), "the server has noticed")
        lost += held_by(stage, doomed)
        doomed = stage.worker(*flags, name="doomed", wait=False)
    stage.wait_all_done(number)

    assert stage.states() == {"done": number}
    # No job has two accepted endings, and every one has one.
    endings = stage.sql(
        "SELECT job_id, count(*) AS n FROM process_ledger WHERE new_state = 'done' GROUP BY job_id"
    )
    assert len(endings) == number
    assert {row["n"] for row in endings} == {1}
    assert stage.count("process_ledger", "new_state IN ('failed', 'cancelled')") == 0
    # Every claim is one generation and one attempt; what was lost, and nothing else, was claimed again.
    assert lost > 0
    assert stage.count("process_ledger", "new_generation NOT IN (old_generation, old_generation + 1)") == 0
    assert stage.count("process_ledger", "new_generation > old_generation") == number + lost
    assert stage.count("process_ledger", "old_state = 'running' AND new_state = 'running'") == lost
    totals = stage.sql(
        "SELECT sum(generation) AS generations, sum(attempts) AS attempts FROM django_pgqueue_job"
    )
    assert totals == [{"generations": number + lost, "attempts": number + lost}]
    assert stage.count("django_pgqueue_job", "cardinality(worker_ids) <> generation") == 0
    assert stage.count("django_pgqueue_failure") == lost
    assert stage.count("django_pgqueue_failure", "kind = 'lease_expired'") == lost

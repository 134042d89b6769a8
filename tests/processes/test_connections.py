"""The worker's connections: how many, which, for how long, and what happens when they die."""

import pytest

from tests.processes.stage import Stage

ROLES = ("loop", "heartbeat", "upkeep", "listener", "job")
OURS = "datname IN (current_database(), current_database() || '_other')"  # not those of another run


@pytest.mark.parametrize("checks", [False, True])
def test_a_connection_that_was_closed_is_not_used_again(stage: Stage, checks: bool) -> None:
    """The job thread's session is ended between two jobs, and during one; three rounds for each CONN_MAX_AGE.

    Report 57.
    """
    workers = {}
    for age in (0, 60, None):
        settings = {"database": {"CONN_MAX_AGE": age, "CONN_HEALTH_CHECKS": checks}}
        flags = ("--concurrency", "1", "--queue-name", f"age{age}", "--lease", "30")
        workers[f"age{age}"] = stage.worker(*flags, settings=settings, wait=False)
    stage.wait_working(*workers.values())

    for round_number in range(3):
        for queue, worker in workers.items():
            stage.wait_state(stage.enqueue("ask", queue=queue), "done")
            stage.terminate(worker, "job")
            between = stage.enqueue("ask", queue=queue)
            stage.wait_state(between, "done")
            assert stage.brief(between) == ("done", 1, 1), f"{queue}, round {round_number}\n{stage.logs()}"

            during = stage.enqueue("ask", f"{queue}-{round_number}", queue=queue)
            stage.wait_note("asked", during)
            assert stage.terminate(worker, "job") == 1
            stage.open(f"{queue}-{round_number}")
            stage.wait_state(during, "done")
            assert stage.brief(during) == ("done", 2, 2), f"{queue}, round {round_number}\n{stage.logs()}"


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.parametrize("age", [0, None])
def test_connections_are_bounded_and_say_whose_they_are(stage: Stage, age: int | None) -> None:
    """Report 63."""
    worker = stage.worker("--concurrency", "8", settings={"database": {"CONN_MAX_AGE": age}})
    stage.enqueue_many("touch_two_databases", 270)
    stage.enqueue_many("atouch_two_databases", 30)
    most = 0

    def all_done() -> bool:
        nonlocal most
        most = max(most, len(stage.sessions(worker)))
        return stage.states() == {"done": 300}

    stage.wait(all_done, lambda: f"all are done; {stage.states()}\n{stage.logs()}", 60)
    stage.enqueue("touch_two_databases")
    most = max(most, len(stage.sessions(worker)))

    closing = 8 if age == 0 else 0  # the server takes a moment to let go of one that was closed
    assert most <= 8 * 2 + len(ROLES) - 1 + closing
    names = {row["application_name"].split()[2] for row in stage.sessions(worker)}
    assert names <= set(ROLES)
    assert {"loop", "heartbeat", "upkeep"} <= names
    # Nothing of the worker's is anonymous: what is left are the test's own sessions.
    strangers = stage.sql(
        f"SELECT application_name FROM pg_stat_activity WHERE {OURS}"
        " AND application_name NOT LIKE 'pgqueue %' AND application_name NOT IN ('the test', '')"
    )
    assert strangers == []
    unnamed = stage.count(
        "pg_stat_activity",
        f"{OURS} AND application_name = '' AND backend_type = 'client backend'"
        " AND backend_start > (SELECT min(started_at) FROM django_pgqueue_worker)",
    )
    assert unnamed == 0


def test_a_pool_smaller_than_the_concurrency_stops_nobody(stage: Stage) -> None:
    """Report 64."""
    pytest.importorskip("psycopg_pool")
    settings = {"database": {"CONN_MAX_AGE": 0}, "options": {"pool": {"min_size": 1, "max_size": 4}}}
    worker = stage.worker("--concurrency", "8", settings=settings)
    held = [stage.enqueue("ask", "end") for _ in range(4)]  # these take the whole pool
    for job in held:
        stage.wait_note("asked", job)
    stage.enqueue_many("keep_connection_busy", 40)
    before = stage.job(held[0])["lease_until"]
    stage.wait(lambda: stage.job(held[0])["lease_until"] > before, "the heartbeat does not wait for the pool")
    stage.open("end")

    stage.wait_all_done(44)
    assert stage.count("django_pgqueue_job", "attempts = 1") == 44
    worker.stop()
    assert worker.wait() == 0, worker.output


def test_a_connection_opened_while_django_started_is_not_shared_with_a_thread(stage: Stage) -> None:
    """Report 65."""
    worker = stage.worker(
        "--concurrency", "4", faults="ready-query", settings={"database": {"CONN_MAX_AGE": None}}
    )
    mains = stage.sql(
        "SELECT pid FROM pg_stat_activity WHERE query = 'SELECT pg_backend_pid()'"
        " AND application_name NOT LIKE 'pgqueue%' AND datname = current_database()"
    )
    assert len(mains) == 1
    jobs = [stage.enqueue("ask") for _ in range(12)]
    pids = {stage.wait_state(job, "done")["result"] for job in jobs}
    assert mains[0]["pid"] not in pids
    assert 1 <= len(pids) <= 4
    worker.stop()
    assert worker.wait() == 0, worker.output


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_queue_on_its_own_alias_leaves_the_jobs_transaction_on_another_alone(stage: Stage) -> None:
    """Report 67."""
    other = stage.url.replace("?", "_other?", 1)
    stage.sql("DROP TABLE IF EXISTS process_audit")
    stage.sql("CREATE TABLE process_audit (job_id bigint, generation bigint, pid int)")
    job = stage.enqueue("write_slowly", "end", url=other)
    settings = {"tasks": {"DATABASE": "other", "HEARTBEAT": 0.2}}
    worker = stage.worker("--lease", "0.6", settings=settings, wait=False)
    stage.wait_working(worker, url=other)
    stage.wait_note("written", job)
    before = stage.job(job, url=other)["lease_until"]

    def renewed() -> bool:
        return (stage.job(job, url=other)["lease_until"] - before).total_seconds() > 1

    stage.wait(renewed, "the lease is renewed on the queue's alias")
    for _ in range(5):  # upkeep and other jobs go on meanwhile
        stage.wait_state(stage.enqueue("noop", url=other), "done", url=other)
    mine = stage.sql("SELECT current_database() AS name")[0]["name"]
    roles = {row["application_name"].split()[2] for row in stage.sessions(worker) if row["datname"] == mine}
    assert roles == {"job"}
    stage.open("end")

    row = stage.wait_state(job, "done", url=other)
    assert (row["generation"], row["attempts"]) == (1, 1)
    assert stage.count("process_audit", "job_id = %s", job) == 1  # it was committed
    worker.stop()
    assert worker.wait() == 0, worker.output


def test_no_transaction_stays_open_while_a_job_runs_nor_while_idle(stage: Stage) -> None:
    """Report 69."""
    worker = stage.worker("--lease", "1")

    def no_old_transaction() -> bool:
        return not any(
            row["xact_age"] is not None
            and row["state"].startswith("idle in")
            and row["xact_age"].total_seconds() > 1
            for row in stage.sessions(worker)
        )

    stage.stays(no_old_transaction, 1, "idle")
    job = stage.enqueue("hold", "end")
    stage.wait_note("started", job)
    stage.stays(no_old_transaction, 3, "a job runs")
    assert all(row["xact_age"] is None for row in stage.sessions(worker, "job"))
    stage.open("end")
    stage.wait_state(job, "done")

"""A worker that is slow, frozen or cut off, and another one that is ready to take its jobs."""

import pytest

from tests.processes.stage import LEASE, Stage, Worker


def set_a_thief(stage: Stage) -> Worker:
    """Start a second worker, which takes whatever expires; later than the jobs, or it would take them as ready ones."""
    return stage.worker(name="thief")


def until_renewed_twice(stage: Stage, job: int) -> None:
    """Wait until the job's lease was pushed ahead by more than a lease: as long as it would have lasted."""
    before = stage.job(job)["lease_until"]
    stage.wait(
        lambda: (
            (lease := stage.job(job)["lease_until"]) is not None and (lease - before).total_seconds() > LEASE
        ),
        lambda: f"the lease is renewed; {stage.job(job)}\n{stage.logs()}",
    )


def test_the_replacements_outcome_stands_and_the_thawed_worker_goes_on(stage: Stage) -> None:
    """Reports 15 and 150."""
    job = stage.enqueue("hold_first", "thawed")
    frozen = stage.worker(name="frozen", wait=False)
    stage.wait_note("started", job)
    frozen.freeze()
    second = stage.worker(name="second")
    row = stage.wait_state(job, "done")
    assert (row["generation"], row["result"]) == (2, 2)

    second.kill()
    stage.open("thawed")
    frozen.thaw()

    late = stage.wait_note("ended", job, count=2)
    assert late["generation"] == 1
    stage.wait(lambda: bool(stage.rejections(job)), "the refusal is kept")
    next_job = stage.enqueue("mark")
    assert stage.wait_state(next_job, "done")["worker_ids"] == [frozen.id]  # it polls on
    stage.wait(lambda: len(stage.rejections(job)) >= 1, "kept")
    assert {(old, new) for old, new, _, _ in stage.rejections(job)} == {(1, 2)}
    assert "complete" in {action for _, _, action, _ in stage.rejections(job)}
    assert {verdict for *_, verdict in stage.rejections(job)} == {"superseded"}
    assert stage.wait_note("completion_rejected", job)["facts"]["current_generation"] == 2
    assert stage.job(job) == row  # not a column has changed
    assert stage.failures(job) == [(1, "lease_expired", "")]


def test_a_thawed_worker_whose_job_nobody_took_keeps_it(stage: Stage) -> None:
    """Report 150."""
    jobs = [stage.enqueue("hold", "thawed", max_attempts=most) for most in (1, 5)]
    frozen = stage.worker(wait=False)
    for job in jobs:
        stage.wait_note("started", job)

    for _ in range(3):
        frozen.freeze()
        stage.wait(lambda: stage.count("django_pgqueue_job", "lease_until < now()") == 2, "both have expired")
        frozen.thaw()
        stage.wait(lambda: stage.count("django_pgqueue_job", "lease_until > now()") == 2, "both are renewed")

    stage.open("thawed")
    for job in jobs:
        stage.wait_state(job, "done")
        assert stage.brief(job) == ("done", 1, 1)
        assert len(stage.notes("started", job)) == 1


@pytest.mark.slow
def test_jobs_of_four_leases_keep_theirs(stage: Stage) -> None:
    """A busy loop and a blocked event loop do not starve the heartbeat; a C call that keeps the GIL would.

    Reports 16, 17 and 20.
    """
    lease = 2.5
    worker = stage.worker("--queue-name", "long", "--lease", str(lease))
    jobs = [stage.enqueue(name, 4 * lease, queue="long") for name in ("nap", "spin", "block_the_loop")]
    for job in jobs:
        stage.wait_state(job, "running")
    set_a_thief(stage)

    for job in jobs:
        stage.wait_state(job, "done", 8 * lease + 10)
        assert stage.brief(job) == ("done", 1, 1)
        assert stage.job(job)["worker_ids"] == [worker.id]
        assert stage.rejections(job) == []


def test_losing_a_connection_is_not_losing_the_lease(stage: Stage) -> None:
    """The heartbeat's session is ended once, then every session of the worker, three times.

    Reports 18 and 23.
    """
    worker = stage.worker("--queue-name", "held")
    job = stage.enqueue("hold", "end", queue="held")
    stage.wait_note("started", job)
    set_a_thief(stage)

    assert stage.terminate(worker, "heartbeat") == 1
    until_renewed_twice(stage, job)
    for _ in range(3):
        assert stage.terminate(worker) >= 3
        stage.wait(lambda: len(stage.sessions(worker)) >= 3, "the worker has connected again")
    until_renewed_twice(stage, job)

    stage.open("end")
    stage.wait_state(job, "done")
    assert stage.brief(job) == ("done", 1, 1)
    assert stage.notes("ended", job)[0]["lease_lost"] is False
    assert stage.count("django_pgqueue_rejection") == 0
    assert len(worker.output.splitlines()) < 20


@pytest.mark.parametrize("taken", [False, True])
def test_a_locked_row_does_not_pile_up_heartbeats(stage: Stage, taken: bool) -> None:
    """The row is locked for longer than a lease; `taken` says whether the job moves on behind the lock.

    Report 19.
    """
    worker = stage.worker("--queue-name", "held")
    job = stage.enqueue("hold", "end", queue="held", max_attempts=2)
    stage.wait_note("started", job)

    with stage.connect() as session, session.transaction():
        session.execute("SELECT 1 FROM django_pgqueue_job WHERE id = %s FOR UPDATE", [job])
        stage.stays(
            lambda: not any(row["wait_event_type"] == "Lock" for row in stage.sessions(worker)),
            1.3 * LEASE,
            "nobody waits for the row",
        )
        if taken:
            session.execute(
                "UPDATE django_pgqueue_job SET generation = 2, attempts = 2, worker_ids = worker_ids || 'b'::text,"
                " lease_until = clock_timestamp() + interval '1 minute' WHERE id = %s",
                [job],
            )
    if taken:
        stage.wait_note("lease_lost", job)
    else:
        until_renewed_twice(stage, job)
    stage.open("end")

    if taken:
        assert stage.wait_note("ended", job)["lease_lost"] is True
        stage.wait(lambda: (1, 2, "complete", "superseded") in stage.rejections(job), "it is refused")
        assert stage.brief(job) == ("running", 2, 2)
    else:
        stage.wait_state(job, "done")
        assert stage.brief(job) == ("done", 1, 1)
        assert stage.rejections(job) == []
    assert stage.wait_state(stage.enqueue("noop", queue="held"), "done")


def test_a_job_that_commits_by_itself_and_closes_its_connections_stays_its_owner(stage: Stage) -> None:
    """Report 24."""
    worker = stage.worker("--queue-name", "held")
    job = stage.enqueue("commit_and_close", "end", queue="held")
    stage.wait_note("committed", job)
    set_a_thief(stage)
    until_renewed_twice(stage, job)
    stage.open("end")

    assert stage.wait_state(job, "done")["worker_ids"] == [worker.id]
    assert stage.brief(job) == ("done", 1, 1)


def test_a_worker_with_a_short_lease_leaves_the_jobs_of_one_with_a_long_lease_alone(stage: Stage) -> None:
    """Report 136."""
    long = stage.worker("--lease", "60", "--queue-name", "held")
    job = stage.enqueue("hold", "end", queue="held")
    stage.wait_note("started", job)
    stage.worker("--lease", "0.3")

    stage.stays(lambda: stage.brief(job) == ("running", 1, 1), 1.5, "the job is left alone")
    stage.open("end")
    assert stage.wait_state(job, "done")["worker_ids"] == [long.id]
    assert stage.brief(job) == ("done", 1, 1)


def test_a_job_whose_row_is_deleted_while_it_runs_is_a_refusal_and_no_more(stage: Stage) -> None:
    """Report 38."""
    worker = stage.worker()
    job = stage.enqueue("hold", "end")
    stage.wait_note("started", job)
    stage.sql("DELETE FROM django_pgqueue_job WHERE id = %s", job)
    stage.open("end")

    stage.wait(lambda: (1, None, "complete", "missing") in stage.rejections(job), "it is refused")
    assert stage.wait_state(stage.enqueue("noop"), "done")["worker_ids"] == [worker.id]

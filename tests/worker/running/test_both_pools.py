"""What a worker does with jobs, whichever pool runs them."""

from __future__ import annotations

from tests.processes.stage import Stage
from tests.worker.tools import LONG, TASKS, Start, effects_of, enqueue

ENDINGS = {
    "add": (("add", 1, 2), ("done", 1, 1), []),
    "fails and is tried again": (
        ("fail_first",),
        ("done", 2, 2),
        [(1, "error", f"{TASKS}.Deliberate")],
    ),
    "snoozes": (("snooze_first",), ("done", 2, 1), []),
    "SystemExit": (("leave_with", "SystemExit"), ("failed", 1, 1), [(1, "error", "builtins.SystemExit")]),
    "KeyboardInterrupt": (
        ("leave_with", "KeyboardInterrupt"),
        ("failed", 1, 1),
        [(1, "error", "builtins.KeyboardInterrupt")],
    ),
    "bare": (("leave_with", "Bare"), ("failed", 1, 1), [(1, "error", f"{TASKS}.Bare")]),
    "CancelledError": (
        ("leave_with", "CancelledError"),
        ("failed", 1, 1),
        [(1, "error", "asyncio.exceptions.CancelledError")],
    ),
    "unserialisable": (
        ("leave_with", "object"),
        ("failed", 1, 1),
        [(1, "error", "django_pgqueue.exceptions.InvalidPayload")],
    ),
    "async SystemExit": (
        ("aleave_with", "SystemExit"),
        ("failed", 1, 1),
        [(1, "error", "builtins.SystemExit")],
    ),
    "async CancelledError": (
        ("aleave_with", "CancelledError"),
        ("failed", 1, 1),
        [(1, "error", "asyncio.exceptions.CancelledError")],
    ),
    "async unserialisable": (
        ("aleave_with", "object"),
        ("failed", 1, 1),
        [(1, "error", "django_pgqueue.exceptions.InvalidPayload")],
    ),
    "no such task": (("gone",), ("failed", 1, 1), [(1, "error", "builtins.ImportError")]),
    "completes itself, then fails": (("complete_and_fail",), ("done", 1, 1), []),
    "fails inside a fence": (
        ("fence_and_fail",),
        ("failed", 1, 1),
        [(1, "error", f"{TASKS}.Deliberate")],
    ),
    "transactional": (
        ("write_and_fail_first",),
        ("done", 2, 2),
        [(1, "error", f"{TASKS}.Deliberate")],
    ),
    "sends once": (("send_once",), ("done", 2, 2), [(1, "error", f"{TASKS}.Deliberate")]),
}


def test_however_a_job_ends_its_end_is_recorded_and_the_worker_goes_on(
    stage: Stage, start: Start, pool: str
) -> None:
    jobs = {}
    for name, ((task, *args), expected, _) in ENDINGS.items():
        columns = {} if expected[1] > 1 else {"max_attempts": 1}
        jobs[name] = enqueue(stage, task, *args, **columns)
    worker = start(*LONG, "--concurrency", "2", wait=False)
    for job in jobs.values():
        stage.wait(
            lambda job=job: stage.job(job)["finished_at"] is not None,
            lambda: f"{stage.states()}\n{stage.logs()}",
        )

    wrong = {
        name: (stage.brief(job), stage.failures(job))
        for name, job in jobs.items()
        if (stage.brief(job), stage.failures(job)) != ENDINGS[name][1:]
    }
    assert wrong == {}
    assert stage.job(jobs["add"])["result"]["sum"] == 3
    assert (stage.job(jobs["add"])["result"]["pid"] == worker.pid) is (pool == "threads")
    assert stage.job(jobs["completes itself, then fails"])["result"] == "by itself"
    assert effects_of(stage, jobs["completes itself, then fails"]) == ["once"]
    assert effects_of(stage, jobs["fails inside a fence"]) == ["kept"]
    assert effects_of(stage, jobs["transactional"]) == ["attempt 2"]
    assert len(stage.notes("sent", jobs["sends once"])) == 1
    assert stage.job(jobs["sends once"])["result"] == "by generation 1"
    assert stage.count("django_pgqueue_rejection") == 0
    worker.stop()
    assert worker.wait() == 0, worker.output


def test_a_running_job_is_told_of_its_cancellation_at_its_next_check(stage: Stage, start: Start) -> None:
    from django_pgqueue import outcomes

    job = enqueue(stage, "check_until_told")
    start("--lease", "1.5")
    stage.wait_note("started", job)
    assert outcomes.cancel(job).message == "cancellation requested"
    stage.wait_state(job, "cancelled", 5)
    assert stage.failures(job) == [(1, "cancelled", "django_pgqueue.exceptions.JobCancelled")]


def test_a_running_job_is_told_that_its_lease_is_lost(stage: Stage, start: Start) -> None:
    from django_pgqueue import leases

    job = enqueue(stage, "check_until_told")
    start("--lease", "1.5")
    stage.wait_note("started", job)

    def taken_over() -> bool:  # if the heartbeat is not quicker
        stage.sql("UPDATE django_pgqueue_job SET lease_until = now() - interval '1 s' WHERE id = %s", job)
        return bool(leases.reclaim(worker="another"))

    stage.wait(taken_over, "another worker reclaims the job")
    stage.wait(lambda: len(stage.rejections(job)) >= 1, "the loss is on record", 5)
    assert (1, 2, "renew", "superseded") in stage.rejections(job)
    assert stage.brief(job)[1] == 2


def test_a_job_beyond_its_timeout_ends_near_it_and_its_slot_is_free_again(
    stage: Stage, start: Start, pool: str
) -> None:
    """A busy loop, one long call, a coroutine; what the late one still writes under its lease is refused.

    Report 135.
    """
    worker = start(*LONG, "--concurrency", "3")
    tasks = ("spin_too_long", "sleep_too_long", "anap_too_long")
    late = {task: enqueue(stage, task, max_attempts=1) for task in tasks}
    rows = [stage.wait_state(job, "failed") for job in late.values()]
    for row in rows:
        assert 0.45 <= (row["finished_at"] - row["started_at"]).total_seconds() < 3
        assert stage.failures(row["id"]) == [(1, "timeout", "django_pgqueue.exceptions.JobTimeout")]

    after = [enqueue(stage, "hold", "end") for _ in tasks]
    stage.wait(
        lambda: len([note for note in stage.notes("started") if note["job"] in after]) == 3, "all slots work"
    )
    stage.open("end")
    assert {stage.wait_state(job, "done")["generation"] for job in after} == {1}
    if pool == "threads":  # a child process is dead by then
        stage.wait_note("late", late["sleep_too_long"])
    assert effects_of(stage, late["sleep_too_long"]) == []
    assert {stage.brief(job) for job in late.values()} == {("failed", 1, 1)}
    worker.stop()
    assert worker.wait() == 0, worker.output


def test_jobs_use_every_slot_at_once(stage: Stage, start: Start) -> None:
    start(*LONG, "--concurrency", "3")
    jobs = [enqueue(stage, "hold", "end") for _ in range(4)]
    stage.wait(lambda: len(stage.notes("started")) == 3, "three have started")
    stage.stays(lambda: len(stage.notes("started")) == 3, 0.3, "and no fourth one")
    stage.open("end")
    assert {stage.wait_state(job, "done")["state"] for job in jobs} == {"done"}

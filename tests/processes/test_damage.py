"""What a job may do to its thread and its connection, and how it may end, without harming the next job."""

from pathlib import Path

import pytest

from tests.processes.stage import Stage, Worker

KEPT = {"database": {"CONN_MAX_AGE": None}}
DAMAGES = {  # what it does: how the job itself ends
    "commits by itself": "done",
    "closes its connection": "done",
    "closes the raw connection": "done",
    "leaves atomic open": "done",
    "leaves two atomic blocks open": "done",
    "turns autocommit off": "done",
    "turns autocommit off, then fails": "failed",
    "swallows an error in atomic": "done",
    "leaves an aborted transaction": "done",
    "begins by hand": "done",
    "leaves a callback for a commit that never comes": "done",
    "fails inside atomic": "failed",
    "replaces its connection": "done",
    "is ended by the server": "failed",
}
ENDINGS = {  # how the job leaves: what is recorded
    "exit": "builtins.SystemExit",
    "interrupt": "builtins.KeyboardInterrupt",
    "generator exit": "builtins.GeneratorExit",
    "bare": "tests.processes.tasks.Bare",
    "stop iteration": "builtins.StopIteration",
    "nul": "builtins.ValueError",
    "nul in a key": "django_pgqueue.exceptions.InvalidPayload",
    "infinite": "django_pgqueue.exceptions.InvalidPayload",
    "surrogate": "builtins.ValueError",
    "unprintable": "tests.processes.tasks.Unprintable",
    "unserialisable": "django_pgqueue.exceptions.InvalidPayload",
    "group": "builtins.ExceptionGroup",
    "long": "builtins.ValueError",
    "recursion": "builtins.RecursionError",
}
ASYNC_ENDINGS = {
    "cancelled": "asyncio.exceptions.CancelledError",
    "exit": "builtins.SystemExit",
    "interrupt": "builtins.KeyboardInterrupt",
    "cancels itself": "asyncio.exceptions.CancelledError",
}


def stop_gracefully(worker: Worker) -> None:
    """A real signal is still honoured."""
    worker.stop()
    assert worker.wait() == 0, worker.output


def test_the_next_job_has_a_healthy_connection_whatever_the_last_one_did(stage: Stage) -> None:
    """Reports 24 and 35."""
    jobs: dict[str, tuple[int, int]] = {}
    for how in DAMAGES:
        jobs[how] = stage.enqueue("damage", how, max_attempts=2), stage.enqueue("check_health")
    worker = stage.worker("--concurrency", "1", settings=KEPT)

    outcome = {}
    for how, (job, check) in jobs.items():
        stage.wait(lambda job=job: stage.job(job)["state"] in ("done", "failed"), lambda: stage.logs())
        stage.wait_state(check, "done")
        outcome[how] = stage.job(job)["state"], stage.job(check)["result"], stage.brief(job)[1:]
    assert outcome == {
        how: (state, "healthy", (2, 2) if state == "failed" else (1, 1)) for how, state in DAMAGES.items()
    }
    assert stage.notes("callback") == []
    stop_gracefully(worker)


def test_however_a_job_ends_its_end_is_recorded_and_the_worker_goes_on(stage: Stage) -> None:
    """Reports 29, 34, 39 and 154."""
    jobs = {("leave_with", how): stage.enqueue("leave_with", how, max_attempts=1) for how in ENDINGS}
    jobs |= {("aleave_with", how): stage.enqueue("aleave_with", how, max_attempts=1) for how in ASYNC_ENDINGS}
    last = stage.enqueue("noop", priority=-1)
    worker = stage.worker("--concurrency", "2", "--lease", "30")

    stage.wait_state(last, "done")
    recorded = {}
    for key, job in jobs.items():
        stage.wait_state(job, "failed")
        # The generation may be a later one: a job that waited for a slot may have been given back first.
        recorded[key] = [(kind, name) for _, kind, name in stage.failures(job)]
        state, _, attempts = stage.brief(job)
        assert (state, attempts) == ("failed", 1)
    assert recorded == {
        **{("leave_with", how): [("error", name)] for how, name in ENDINGS.items()},
        **{("aleave_with", how): [("error", name)] for how, name in ASYNC_ENDINGS.items()},
    }
    sizes = stage.sql("SELECT max(length(message) + length(traceback)) AS n FROM django_pgqueue_failure")
    assert sizes[0]["n"] < 200_000
    stop_gracefully(worker)


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """Make task modules that cannot be imported; here they cannot be, or linters would stumble over them."""
    folder = tmp_path / "modules"
    folder.mkdir()
    for name, text in {
        "raises": "1 / 0",
        "syntax": "def broken(:\n    pass",
        "exits": "raise SystemExit(3)",
        "interrupts": "raise KeyboardInterrupt",
    }.items():
        (folder / f"pgqueue_{name}.py").write_text(f"{text}\n")
    return folder


def test_a_task_that_cannot_be_had_is_a_failure_that_names_it(stage: Stage, modules: Path) -> None:
    """Reports 40 and 103."""
    expected = {
        "pgqueue_raises.task": "builtins.ZeroDivisionError",
        "pgqueue_syntax.task": "builtins.SyntaxError",
        "pgqueue_exits.task": "builtins.SystemExit",
        "pgqueue_interrupts.task": "builtins.KeyboardInterrupt",
        "pgqueue_missing.task": "builtins.ModuleNotFoundError",
        "tests.processes.tasks.missing": "builtins.ImportError",
        "tests.processes.tasks.no_task": "builtins.TypeError",
        "tests.processes.tasks.one_argument": "builtins.TypeError",
        "nodots.": "builtins.ModuleNotFoundError",
    }
    jobs = {path: stage.enqueue(path, max_attempts=1) for path in expected}
    nameless = stage.enqueue("x.y", max_attempts=1)
    stage.sql("UPDATE django_pgqueue_job SET task = '' WHERE id = %s", nameless)
    last = stage.enqueue("mark", priority=-1)
    worker = stage.worker("--concurrency", "1", env={"PYTHONPATH": str(modules)})

    stage.wait_state(last, "done")
    recorded = {}
    for path, job in jobs.items():
        stage.wait_state(job, "failed")
        recorded[path] = stage.failures(job)[0][2]
        row = stage.sql("SELECT message, traceback FROM django_pgqueue_failure WHERE job_id = %s", job)[0]
        module, _, name = path.rpartition(".")
        assert module in row["traceback"] or (name or module) in row["message"], row
    stage.wait_state(nameless, "failed")
    assert recorded == expected
    stop_gracefully(worker)


def test_a_job_leaves_no_trace_of_its_surroundings_for_the_next(stage: Stage) -> None:
    """Report 133."""
    before = stage.enqueue("report_traces")
    after = {}
    for task in ("leave_traces", "aleave_traces"):
        for how in ("set", "set_config", "commented"):
            job = stage.enqueue(task, how)
            after[task, how] = job, stage.enqueue("report_traces")
    stage.worker("--concurrency", "1", settings=KEPT)

    clean = stage.wait_state(before, "done")["result"]
    assert clean["time zone"] == "UTC"
    assert clean["context variable"] == "none"
    assert clean["custom setting"] == ""
    seen = {}
    for key, (job, report) in after.items():
        assert stage.wait_state(job, "done")["attempts"] == 1
        seen[key] = stage.wait_state(report, "done")["result"]
    assert seen == dict.fromkeys(after, clean)


def test_receivers_and_log_handlers_that_raise_change_no_outcome(stage: Stage) -> None:
    """Report 138."""
    worker = stage.worker("--concurrency", "2", faults="receivers,handler", wait=False)
    stage.wait_working(worker)
    good = [stage.enqueue("mark") for _ in range(3)]
    bad = [stage.enqueue("leave_with", "exit", max_attempts=1) for _ in range(3)]
    lost = stage.enqueue("hold", "end")
    stage.wait_note("started", lost)
    stage.sql(
        "UPDATE django_pgqueue_job SET generation = 2, worker_ids = worker_ids || 'b'::text WHERE id = %s",
        lost,
    )
    stage.wait_note("lease_lost", lost)
    stage.terminate(worker)  # every thread has something to log
    stage.open("end")

    for job in good:
        stage.wait_state(job, "done")
    for job in bad:
        stage.wait_state(job, "failed")
        stage.wait_note("job_failed", job)  # raised by one receiver, received by the next
    stage.wait(lambda: bool(stage.rejections(lost)), lambda: f"it is refused\n{stage.logs()}")
    stage.wait_state(stage.enqueue("mark"), "done")
    stop_gracefully(worker)


def test_a_later_migration_adds_a_column_while_the_worker_runs(stage: Stage) -> None:
    """Report 148."""
    worker = stage.worker("--concurrency", "2", settings={"options": {"prepare_threshold": 1}})
    held = stage.enqueue("hold", "end")
    stage.wait_note("started", held)
    for _ in range(5):
        stage.wait_state(stage.enqueue("noop"), "done")
    try:
        stage.sql("ALTER TABLE django_pgqueue_job ADD COLUMN later integer DEFAULT 0")
        for _ in range(5):
            job = stage.enqueue("noop")
            stage.wait_state(job, "done")
            assert stage.brief(job) == ("done", 1, 1)
    finally:
        stage.sql("ALTER TABLE django_pgqueue_job DROP COLUMN later")
    stage.open("end")
    stage.wait_state(held, "done")
    assert stage.brief(held) == ("done", 1, 1)
    stop_gracefully(worker)

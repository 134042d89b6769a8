"""`--pool processes`: what a child does to itself ends only its own attempt, and at once."""

from __future__ import annotations

import os
import signal
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from tests.processes.stage import Stage, is_alive
from tests.worker.tools import children, enqueue, start_processes

pytestmark = pytest.mark.usefixtures("effects")

DEATHS = {
    "exit": "exit code 7",
    "kill": "exit code -9",
    "segfault": "exit code -11",
    "terminate": "exit code -15",
}


def test_a_child_that_dies_ends_only_its_own_attempt_at_once_and_is_replaced(stage: Stage) -> None:
    """The lease would run out in a minute; the other child's job does not notice, however often that happens."""
    worker = start_processes(stage, "--lease", "60")
    other = enqueue(stage, "hold", "end")
    stage.wait_note("started", other)
    for how, code in DEATHS.items():
        job = enqueue(stage, "die_first", how)
        first = stage.wait_note("started", job)
        since = time.monotonic()
        stage.open(how)
        row = stage.wait_state(job, "done")
        assert time.monotonic() - since < 15
        # Claimed ahead while the new child starts, it may be given back once: that costs a generation, no attempt.
        assert row["attempts"] == 2
        assert stage.failures(job) == [(1, "crashed", "django_pgqueue.exceptions.JobCrashed")]
        (failure,) = stage.sql("SELECT * FROM django_pgqueue_failure WHERE job_id = %s", job)
        assert code in failure["message"]
        assert row["run_after"] < row["started_at"]  # the task's own retry policy: at once
        assert row["result"] != first["pid"]
        assert not is_alive(first["pid"])
        assert code in worker.output

    assert stage.brief(other) == ("running", 1, 1)
    stage.open("end")
    assert stage.wait_state(other, "done")["generation"] == 1
    assert stage.count("django_pgqueue_rejection") == 0
    worker.stop()
    assert worker.wait() == 0


def test_a_child_that_is_killed_while_idle_costs_nothing_and_is_replaced(stage: Stage) -> None:
    worker = start_processes(stage, "--lease", "60")
    stage.wait_state(enqueue(stage, "add", 1, 2), "done")
    stage.wait(lambda: len(children(worker)) == 2, "both children are there")
    before = {child.pid for child in children(worker)}
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    worker.wait_for(lambda: worker.output.count("A child process ended") == 2, what="the parent has noticed")
    job = enqueue(stage, "add", 1, 2)
    stage.wait_state(job, "done")
    assert stage.job(job)["attempts"] == 1
    assert stage.failures(job) == []
    assert stage.job(job)["result"]["pid"] not in before


def test_a_job_that_takes_every_child_down_fails_after_its_last_attempt(stage: Stage) -> None:
    start_processes(stage, "--lease", "60")
    job = stage.enqueue("kill_own_process", max_attempts=2)
    stage.sql("UPDATE django_pgqueue_job SET run_after = now()")
    stage.wait(
        lambda: stage.brief(job)[1] == 1 and stage.job(job)["state"] != "running", "the first attempt is over"
    )
    stage.sql("UPDATE django_pgqueue_job SET state = 'ready' WHERE state = 'scheduled'")
    stage.wait_state(job, "failed", 15)
    assert [kind for _, kind, _ in stage.failures(job)] == ["crashed", "crashed"]


def test_a_module_that_kills_whoever_imports_it_kills_only_children(stage: Stage, tmp_path: Path) -> None:
    """The parent imports no task, not even to look up how a crashed one is to be tried again."""
    (tmp_path / "deadly_module.py").write_text("import os\nos._exit(11)\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    worker = start_processes(stage, "--lease", "60", env={"PYTHONPATH": path})
    job = stage.enqueue("deadly_module.task", max_attempts=1)
    stage.wait_state(job, "failed")
    assert stage.failures(job) == [(1, "crashed", "django_pgqueue.exceptions.JobCrashed")]
    stage.wait_state(enqueue(stage, "add", 1, 2), "done")
    assert worker.returncode is None


def test_a_c_call_that_holds_the_interpreter_for_three_leases_keeps_its_lease(stage: Stage) -> None:
    worker = start_processes(stage, "--lease", "1")
    stage.worker("--lease", "1", "--concurrency", "1", "--queue-name", "default", name="thief")
    job = enqueue(stage, "hold_the_interpreter", 3.0, queue="held")
    stage.wait_note("started", job)
    quick = enqueue(stage, "add", 1, 2)
    stage.wait_state(quick, "done", 2)
    stage.wait_state(job, "done", 10)
    assert stage.brief(job) == ("done", 1, 1)
    assert stage.job(job)["worker_ids"] == [worker.id]
    assert stage.job(job)["result"] == "kept"
    assert stage.count("django_pgqueue_rejection") == 0


def test_a_stopped_worker_leaves_no_child_and_no_connection(stage: Stage) -> None:
    worker = start_processes(stage)
    stage.wait_state(enqueue(stage, "add", 1, 2), "done")
    family = psutil.Process(worker.pid).children(recursive=True)
    worker.stop()
    assert worker.wait() == 0
    assert psutil.wait_procs(family, timeout=5)[1] == []
    stage.wait(lambda: stage.sessions(worker) == [], "its sessions are gone")


def test_children_that_die_at_their_start_are_started_again_with_backoff_not_hot(
    stage: Stage, tmp_path: Path
) -> None:
    """An import that kills the process: a broken deploy. It recovers once the cause is gone."""
    broken, log = tmp_path / "broken", tmp_path / "starts"
    (tmp_path / "sitecustomize.py").write_text(
        textwrap.dedent(
            f"""
            import os, sys
            if "spawn_main" in " ".join(getattr(sys, "orig_argv", [])):
                with open({str(log)!r}, "a") as starts:
                    starts.write("x")
                if os.path.exists({str(broken)!r}):
                    os._exit(9)
            """
        )
    )
    broken.touch()
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    worker = start_processes(stage, "--lease", "60", env={"PYTHONPATH": path})
    job = enqueue(stage, "add", 1, 2)
    stage.wait(lambda: log.exists() and len(log.read_text()) >= 4, "they are started again")
    since, before = time.monotonic(), len(log.read_text())
    stage.stays(lambda: stage.brief(job) == ("ready", 0, 0), 2.0, "without children nothing is claimed")
    rate = (len(log.read_text()) - before) / (time.monotonic() - since)
    assert rate < 3, f"{rate:.1f} starts a second"
    assert worker.returncode is None
    broken.unlink()
    stage.wait_state(job, "done", 20)
    assert stage.brief(job) == ("done", 1, 1)

"""Inside a child process: whose signals it obeys, what it shares, and that it never stays behind."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from tests.processes.stage import Stage
from tests.worker.tools import children, enqueue, start_processes

pytestmark = pytest.mark.usefixtures("effects")


def test_killing_the_parent_leaves_no_child_behind(stage: Stage) -> None:
    """One child is in a job, the other is idle."""
    worker = start_processes(stage, "--lease", "60")
    job = enqueue(stage, "hold", "never")
    stage.wait_note("started", job)
    stage.wait(lambda: len(children(worker)) == 2, "both children are there")
    family = psutil.Process(worker.pid).children(recursive=True)
    worker.kill()
    gone, alive = psutil.wait_procs(family, timeout=5)
    assert alive == []
    assert stage.brief(job) == ("running", 1, 1)  # its lease will tell


def test_sigint_to_the_whole_group_drains(stage: Stage) -> None:
    """Ctrl-C at a terminal reaches the children too: they leave it to their parent."""
    worker = start_processes(stage, "--lease", "60")
    job = enqueue(stage, "hold", "end")
    stage.wait_note("started", job)
    family = psutil.Process(worker.pid).children(recursive=True)
    os.killpg(worker.pid, signal.SIGINT)
    worker.wait_for(lambda: "Stopping" in worker.output)
    stage.stays(lambda: stage.brief(job) == ("running", 1, 1), 0.3, "it runs on")
    stage.open("end")
    assert worker.wait() == 0, worker.output
    assert stage.brief(job) == ("done", 1, 1)
    assert stage.failures(job) == []
    assert psutil.wait_procs(family, timeout=5)[1] == []


def test_a_second_sigint_to_the_group_leaves_at_once_and_takes_the_children_along(stage: Stage) -> None:
    worker = start_processes(stage, "--lease", "60")
    job = enqueue(stage, "hold", "never")
    stage.wait_note("started", job)
    family = psutil.Process(worker.pid).children(recursive=True)
    os.killpg(worker.pid, signal.SIGINT)
    worker.wait_for(lambda: "Stopping" in worker.output)
    os.killpg(worker.pid, signal.SIGINT)
    assert worker.wait() == 128 + signal.SIGINT
    assert psutil.wait_procs(family, timeout=5)[1] == []


def test_the_parent_runs_no_user_code_and_each_child_has_connections_of_its_own(stage: Stage) -> None:
    worker = start_processes(stage, "--lease", "60")
    jobs = [enqueue(stage, "hold", "end") for _ in range(2)]
    stage.wait(lambda: len(stage.notes("started")) == 2, "both have started")
    pids = {note["pid"] for note in stage.notes("started")}
    assert len(pids) == 2
    assert worker.pid not in pids
    stage.open("end")
    for job in jobs:
        stage.wait_state(job, "done")
    stage.enqueue("ask", "more")
    stage.wait_note("asked")
    roles = {row["application_name"].split()[2] for row in stage.sessions(worker)}
    assert {"loop", "heartbeat", "upkeep", "job"} <= roles

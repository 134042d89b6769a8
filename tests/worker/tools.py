"""What the tests of real workers share: the tasks that these run, and what is left of them."""

from __future__ import annotations

from collections.abc import Callable

import psutil

from tests.processes.stage import Stage, Worker

TASKS = "tests.worker.tasks"
LONG = ("--lease", "60")  # far more than a test takes

Start = Callable[..., Worker]


def enqueue(stage: Stage, task: str, *args: object, **columns: object) -> int:
    """Enqueue a job of one of `TASKS`."""
    return stage.enqueue(f"{TASKS}.{task}", *args, **columns)


def effects_of(stage: Stage, job: int) -> list[str]:
    """Return what the job has done to the database, in order."""
    rows = stage.sql("SELECT text FROM pool_effect WHERE job_id = %s ORDER BY ctid", job)
    return [row["text"] for row in rows]


def start_processes(stage: Stage, *flags: str, **given: object) -> Worker:
    """Start a worker whose jobs run in two child processes."""
    return stage.worker("--pool", "processes", "--concurrency", "2", *flags, **given)


def children(worker: Worker) -> list[psutil.Process]:
    """Return the children that run jobs (multiprocessing has a helper of its own)."""
    every = psutil.Process(worker.pid).children(recursive=True)
    return [child for child in every if "spawn_main" in " ".join(child.cmdline())]


def is_running(pid: int) -> bool:
    """Return whether the process is there and has not ended, reaped or not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

"""Freeze a worker in the middle of a job, let another finish it, thaw the first, see its result refused."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path

from django.db import transaction

from django_pgqueue.lab.processes import WorkerProcess
from django_pgqueue.lab.waiting import Unreached, until
from django_pgqueue.models import Job
from testproject import MANAGE

from .cast import Cast
from .facts import verify
from .limits import DemoFailed
from .screen import Screen

LEASE = timedelta(seconds=3)
RECOVERY = LEASE + timedelta(seconds=5)
START_UP = timedelta(seconds=20)
NAMES = ("demo-a", "demo-b")


class Story:
    """One telling. `tell` returns each fact and whether it holds; it raises DemoFailed where stuck."""

    def __init__(self, cast: Cast, screen: Screen) -> None:
        self.cast = cast
        self.screen = screen
        self.workers: dict[str, WorkerProcess] = {}

    def tell(self) -> list[tuple[str, bool]]:
        with ExitStack() as children:
            for name in NAMES:
                self.workers[name] = children.enter_context(_start(name, self.cast.folder))
            self.screen.say(
                f"two workers: {' and '.join(NAMES)}, lease {LEASE.seconds} s, one job at a time each"
            )

            frozen = self._freeze_the_owner()
            self._wait_for_the_replacement()
            self._thaw(frozen)
            self._wait(
                lambda: self.cast.done() == len(self.cast.orders), "every job is done", within=START_UP
            )
            exit_codes = self._stop()
        return verify(self.cast, frozen=frozen, exit_codes=exit_codes)

    def _freeze_the_owner(self) -> str:
        """Stop the worker that is in the middle of the slow job, holding no row lock; return its id."""
        wait_for_start = partial(self._wait, within=START_UP)
        wait_for_start(lambda: self.cast.rendering(generation=1), "the slow receipt's rendering has begun")
        owner = self.cast.slow_job().worker_ids[-1]
        worker = self._process_of(owner)
        worker.freeze()
        while not self._is_unlocked():
            # Frozen inside one of its short transactions it would keep the row's lock: that is another story.
            worker.thaw()
            self._wait(self._is_unlocked, "the worker's transaction ends", within=LEASE)
            worker.freeze()
        job = self.cast.slow_job()
        if (job.state, job.generation) != ("running", 1):
            raise DemoFailed(
                f"job {job.pk} is frozen while running as generation 1, not {job.state} {job.generation}"
            )
        self.screen.say(f"SIGSTOP: {owner} is frozen in the middle of job {job.pk}, generation 1")
        return owner

    def _wait_for_the_replacement(self) -> None:
        job_id = self.cast.slow_job_id
        self._wait(
            lambda: self.cast.slow_job().generation > 1,
            f"the lease of job {job_id} expires and it is reclaimed",
        )
        self.screen.say(f"reclaimed: {self.cast.slow_job().worker_ids[-1]} runs job {job_id} as generation 2")
        self._wait(lambda: self.cast.slow_job().state == "done", f"the replacement finishes job {job_id}")
        self.screen.say(f"completed: generation 2 has ended job {job_id}")

    def _thaw(self, owner: str) -> None:
        self._process_of(owner).thaw()
        self.screen.say(f"SIGCONT: {owner} wakes up, mails its receipt, and reports its job as done")
        self._wait(self.cast.refused_completions().exists, "the late completion is refused and recorded")
        self.screen.say("refused: generation 1 may not end a job that is at generation 2")

    def _stop(self) -> dict[str, int]:
        for worker in self.workers.values():
            worker.stop()
        self._wait(
            lambda: all(worker.returncode is not None for worker in self.workers.values()),
            "both workers stop at SIGTERM",
        )
        codes = {name: worker.wait() for name, worker in self.workers.items()}
        self.screen.say(f"SIGTERM: the workers ended with exit codes {codes}")
        return codes

    def _process_of(self, worker_id: str) -> WorkerProcess:
        """Return the process behind a worker's id: the name it was given, and a suffix."""
        for name, worker in self.workers.items():
            if worker_id.startswith(name):
                return worker
        raise DemoFailed(
            f"the jobs are claimed by the demo's own workers, not by {worker_id}: stop that one first"
        )

    def _is_unlocked(self) -> bool:
        with transaction.atomic():
            row = Job.objects.select_for_update(skip_locked=True).filter(pk=self.cast.slow_job_id)
            return row.values_list("pk").first() is not None

    def _wait(self, holds: Callable[[], bool], what: str, within: timedelta = RECOVERY) -> None:
        try:
            until(holds, what, within=within, meanwhile=self._look_around)
        except Unreached as late:
            raise DemoFailed(f"within {within.seconds} s: {what}") from late

    def _look_around(self) -> None:
        self.screen.count(self.cast.done(), len(self.cast.orders))
        for name, worker in self.workers.items():
            if worker.returncode not in (None, 0):
                last = " / ".join(worker.output.splitlines()[-3:])
                raise DemoFailed(f"worker {name} keeps running; it ended with {worker.returncode}: {last}")


def _start(name: str, folder: Path) -> WorkerProcess:
    flags = f"--queue-name receipts --concurrency 1 --lease {LEASE.seconds} --worker-id {name}"
    env = {**os.environ, "SHOP_FILES": str(folder)}
    return WorkerProcess(*flags.split(), log=folder / f"{name}.log", env=env, name=name, manage=MANAGE)

"""The app of the worker processes under test: receivers that take notes, and faults on demand.

PROCESS_FAULTS, comma-separated: `ready-query` (a query in `ready`), `receivers` and `handler` (they raise),
`impatient` (a statement is stuck after two seconds, not twenty), `finished` (a receiver of `task_finished` that
takes its time, then a note), `no-children` (the system refuses new processes until the gate `children` opens),
`slow-announcer` (every announcement takes the loop a moment).
"""

import errno
import logging
import os
import threading
from pathlib import Path
from typing import Any

from django.apps import AppConfig

FAULTS = frozenset(os.environ.get("PROCESS_FAULTS", "").split(","))


class ProcessesConfig(AppConfig):
    name = "tests.processes"
    path = str(Path(__file__).parent)

    def ready(self) -> None:
        from django_pgqueue import signals
        from django_pgqueue.compat import task_finished, task_started

        every = {
            "job_failed": signals.job_failed,
            "completion_rejected": signals.completion_rejected,
            "lease_lost": signals.lease_lost,
            "task_started": task_started,
            "task_finished": task_finished,
        }
        if "receivers" in FAULTS:
            for signal in every.values():
                signal.connect(raise_error)
        for name in ("job_failed", "completion_rejected", "lease_lost"):
            every[name].connect(note_signal(name), weak=False)
        if "handler" in FAULTS:
            logging.getLogger("django_pgqueue").addHandler(RaisingHandler())
        if "impatient" in FAULTS:
            from django_pgqueue.worker import service

            service.STUCK_SECONDS = 2.0
        if "finished" in FAULTS:
            task_finished.connect(note_finished_slowly)
        if "no-children" in FAULTS:
            refuse_children()
        if "slow-announcer" in FAULTS:
            announce_slowly()
        if "ready-query" in FAULTS:
            query()


def raise_error(**kwargs: Any) -> None:
    raise RuntimeError("a receiver that raises")


def note_signal(name: str) -> Any:
    from .notes import note

    def receive(**facts: Any) -> None:
        shown = {key: value if isinstance(value, int) else str(value) for key, value in facts.items()}
        note(name, job=facts.get("job_id"), facts=shown)

    return receive


def note_finished_slowly(task_result: Any, **kwargs: Any) -> None:
    from .notes import note

    threading.Event().wait(0.4)
    note("finished", job=int(task_result.id), status=str(task_result.status))


def announce_slowly() -> None:
    from django_pgqueue.worker.services.announcer import Announcer

    announce = Announcer.announce

    def slowly(self: Announcer, ended: Any) -> None:
        threading.Event().wait(0.2)
        announce(self, ended)

    Announcer.announce = slowly


def refuse_children() -> None:
    from django_pgqueue.worker.running import processes

    from .notes import note, wait_for_gate

    spawn = processes.spawn

    def refuse(settings: Any) -> Any:
        try:
            wait_for_gate("children", seconds=0)
        except TimeoutError:
            note("refused")
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
        return spawn(settings)

    processes.spawn = refuse


def query() -> int:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


class RaisingHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError("a log handler that raises")

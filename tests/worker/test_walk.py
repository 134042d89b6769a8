"""One job's life, as docs/architecture.md tells it: which room it enters, in which order."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import django_pgqueue
from django_pgqueue import task
from django_pgqueue.conf import Options
from django_pgqueue.models import Job
from django_pgqueue.worker.settings import WorkerSettings
from django_pgqueue.worker.worker import Worker

PACKAGE = Path(django_pgqueue.__file__).parent
PAGE = (PACKAGE.parent / "docs/architecture.md").read_text()

EXCHANGE = ("worker/loop/cycle.py", "_exchange_once")
# Where the job itself is handled in each room.
WALK = [
    ("backend.py", "enqueue"),
    ("payloads.py", "encode_payload"),
    ("enqueueing.py", "enqueue"),
    EXCHANGE,
    ("worker/loop/claimer.py", "claim"),
    ("leases.py", "claim"),
    ("worker/loop/registry.py", "add"),
    ("worker/running/threads.py", "_run_on"),
    ("worker/running/bench.py", "run"),
    ("worker/running/execution.py", "run"),
    ("worker/loop/registry.py", "end"),
    EXCHANGE,
    ("outcomes/endings.py", "end"),
    ("worker/services/announcer.py", "announce"),
]


@task
def nothing() -> None:
    """Do nothing."""


@contextmanager
def noted_calls() -> Iterator[list[tuple[str, str]]]:
    """Note the calls of functions of the walk, on every thread that starts meanwhile."""
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            call = (str(path.relative_to(PACKAGE)), frame.f_code.co_name)
            is_empty = any(frame.f_locals.get(name) == [] for name in ("endings", "holdings"))
            if call in WALK and not (is_empty and "free" not in frame.f_locals):
                calls.append(call)

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]


@pytest.mark.django_db(transaction=True)
def test_a_job_enters_each_room_once_from_above_and_only_the_cycle_twice() -> None:
    settings = WorkerSettings(using="default", options=Options(), batch=True, concurrency=1, listen=False)
    worker = Worker(settings)
    with noted_calls() as calls:
        nothing.enqueue()
        assert worker.run() == 0
    assert Job.objects.get().state == "done"
    walk = calls[: calls.index(WALK[-1]) + 1]
    held, ended = walk.index(("worker/loop/registry.py", "add")), walk.index(("outcomes/endings.py", "end"))
    first, second = (max(at for at in range(end) if walk[at] == EXCHANGE) for end in (held, ended))
    # Other exchanges, which find nothing to claim and nothing to end, are not the job's.
    own = [
        call
        for at, call in enumerate(walk)
        if at in (first, second) or first < at < held or (call != EXCHANGE and call[1] != "claim")
    ]
    assert own == WALK


def test_the_page_names_the_rooms_in_the_order_of_the_walk() -> None:
    life = PAGE[PAGE.index("## One job's life") : PAGE.index("## Threads and sessions")]
    named = re.findall(r"\]\(\.\./django_pgqueue/([\w/]+\.py)\)", life)
    rooms = list(dict(WALK))
    assert [room for room in rooms if room not in named] == []
    places = [named.index(room) for room in rooms]
    assert places == sorted(places)

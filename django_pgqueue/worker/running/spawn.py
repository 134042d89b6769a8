"""The birth of a child process. Its first step runs before Django is set up there, so this imports no models."""

from __future__ import annotations

import multiprocessing
from dataclasses import asdict, dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import django


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSettings:
    """What a child is told at its start. `names` are the databases' names, which a test run may have changed."""

    using: str
    backend: str
    name: str
    names: dict[str, str]


def spawn(settings: ChildSettings) -> tuple[BaseProcess, Connection]:
    """Start a child as a fresh interpreter: nothing of the parent's threads or connections crosses a fork."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_first_step, args=(theirs, asdict(settings)), name="pgqueue-child")
    process.start()
    theirs.close()
    return process, ours


def _first_step(pipe: Connection, given: dict[str, Any]) -> None:
    django.setup()
    child = import_module("django_pgqueue.worker.running.child")  # late: it imports models
    child.main(pipe, ChildSettings(**given))

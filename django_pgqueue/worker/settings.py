"""What a worker is told at its start."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from ..conf import Options


def worker_id(name: str | None = None) -> str:
    """Return an id that no other run of any process has: `name` (or host and pid) and a random suffix.

    The suffix is what makes the id prove that a claim was this process's own.
    """
    stem = name or f"{socket.gethostname()[:20]}-{os.getpid()}"
    return f"{stem}-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """A worker's settings. `queues` None means every queue; `excluded` are never taken. Times are `timedelta`."""

    using: str
    options: Options
    backend: str = "default"
    id: str = field(default_factory=worker_id)
    queues: Sequence[str] | None = None
    excluded: frozenset[str] = frozenset()
    concurrency: int = 4
    pool: str = "threads"
    lease: timedelta = timedelta(seconds=30)
    interval: timedelta = timedelta(seconds=1)
    shutdown_timeout: timedelta = timedelta(seconds=30)
    batch: bool = False
    listen: bool = True
    max_tasks: int | None = None

    @property
    def beat(self) -> timedelta:
        """Time between renewals: HEARTBEAT, but never more than a third of this worker's lease."""
        return min(self.options.beat, self.lease / 3)

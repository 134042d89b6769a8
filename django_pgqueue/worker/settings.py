"""What a worker is told at its start."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from .. import bounds
from ..conf import Options

SLOWEST_RECLAIM_SECONDS = 3.0


class PoolKind(StrEnum):
    """What runs the jobs: see `--pool`."""

    THREADS = "threads"
    PROCESSES = "processes"


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
    concurrency: int = bounds.CONCURRENCY.default
    pool: PoolKind = PoolKind.THREADS
    lease: timedelta = bounds.LEASE.default
    interval: timedelta = bounds.POLL_INTERVAL.default
    shutdown_timeout: timedelta = bounds.SHUTDOWN_TIMEOUT.default
    batch: bool = False
    listen: bool = True
    max_tasks: int | None = None

    @property
    def beat(self) -> timedelta:
        """Time between renewals: HEARTBEAT, but never more than a third of this worker's lease."""
        return min(self.options.beat, self.lease / 3)

    @property
    def reclaim_seconds(self) -> float:
        """How often to look for expired leases: four times in a lease, but often enough for long ones."""
        return min(self.lease.total_seconds() / 4, SLOWEST_RECLAIM_SECONDS)

    def name(self, role: str) -> str:
        """Return what a session of this worker says it is, in `application_name`."""
        return f"pgqueue {self.id} {role}"

"""Leases, and jobs that hold them, without a worker."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from django_pgqueue.holding import Holding
from django_pgqueue.lease import Lease


def hold(lease: Lease) -> Holding:
    return Holding(lease, sent_at=0.0, stopping=threading.Event(), using="default")


def claimed_from(queue: str) -> Lease:
    return Lease(
        job_id=1, generation=1, attempt=1, max_attempts=1, task="t", queue=queue, priority=0, backend="default",
        payload="{}", worker="w", worker_ids=["w"], enqueued_at=datetime.now(UTC), started_at=None, claimed_at=None,
        duration=timedelta(seconds=30),
    )  # fmt: skip

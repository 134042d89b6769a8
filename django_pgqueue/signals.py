"""Signals of the queue, beside the three of `django.tasks`. Receivers that raise are logged and change nothing."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.dispatch import Signal

# Sent when a write of a worker that no longer owns its job was refused and recorded.
# Arguments: job_id, generation, current_generation (int | None), action, verdict, worker,
# late_by (timedelta | None: how long after the loss).
completion_rejected = Signal()

# Sent when a worker learns that it no longer owns a job. Arguments: job_id, generation, worker.
lease_lost = Signal()

# Sent when a job has ended as failed. Arguments: job_id, generation, task, queue, kind.
job_failed = Signal()


def tell(signal: Signal, sender: Any, **named: Any) -> None:
    """Send a signal. Raises nothing: neither for a receiver, nor for a log handler that is told of one."""
    with suppress(BaseException):  # a receiver that calls sys.exit() ends no worker either
        signal.send_robust(sender, **named)

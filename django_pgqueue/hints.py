"""Wake-up hints: a NOTIFY after the commit, at most one per channel and process in a short while.

Only a hint: polling is what guarantees. Never inside the enqueuing transaction, where NOTIFY would make all
commits of the database wait for each other.
"""

from __future__ import annotations

import threading
import time

from django.db import connections, transaction

from .states import State

CHANNELS = {State.READY: "django_pgqueue_ready", State.SCHEDULED: "django_pgqueue_scheduled"}
QUIET_SECONDS = 0.05

_lock = threading.Lock()
_sent_at: dict[tuple[str, str], float] = {}


def hint_after_commit(state: str, *, using: str) -> None:
    """Tell listening workers, once the caller's transaction has committed, that a job is ready or scheduled."""
    channel = CHANNELS.get(State(state))
    if channel is None or _is_quiet(using, channel):
        return
    connection = connections[using]
    # Else Django knows of no commit: polling finds the job.
    if connection.in_atomic_block or connection.get_autocommit():
        # No partial: Django 5.2 cannot log one that raises, and raises in turn, into the enqueuing code.
        transaction.on_commit(lambda: _notify(channel, using), using=using, robust=True)


def _is_quiet(using: str, channel: str) -> bool:
    """Whether a hint went out so lately that workers are still polling fast."""
    return time.monotonic() - _sent_at.get((using, channel), -QUIET_SECONDS) < QUIET_SECONDS


def _notify(channel: str, using: str) -> None:
    with _lock:
        if _is_quiet(using, channel):
            return
        _sent_at[using, channel] = time.monotonic()
    with connections[using].cursor() as cursor:
        cursor.execute(f"NOTIFY {channel}")

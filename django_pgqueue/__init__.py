"""A PostgreSQL job queue for Django with leases, fencing and a kept record of every refused write.

The public names below are loaded on first use, so that settings files and `models.py` modules can
import this package before Django's app registry is ready.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .context import JobContext
    from .exceptions import DoNotRetry, InvalidPayload, JobCancelled, LeaseLost, Snooze
    from .retry import Backoff
    from .tasks import PgTask, task

__version__ = "0.1.0"

_HOMES = {
    "Backoff": ".retry",
    "DoNotRetry": ".exceptions",
    "InvalidPayload": ".exceptions",
    "JobCancelled": ".exceptions",
    "JobContext": ".context",
    "LeaseLost": ".exceptions",
    "PgTask": ".tasks",
    "Snooze": ".exceptions",
    "task": ".tasks",
}

__all__ = [
    "Backoff",
    "DoNotRetry",
    "InvalidPayload",
    "JobCancelled",
    "JobContext",
    "LeaseLost",
    "PgTask",
    "Snooze",
    "task",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

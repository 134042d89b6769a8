"""The queue's logger. Logs are for people: a handler of theirs that raises ends no job, thread or worker."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import MutableMapping
from typing import Any


class _Logger(logging.LoggerAdapter[logging.Logger]):
    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # the caller's line, not this one
        with contextlib.suppress(Exception):
            super().log(level, msg, *args, **kwargs)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs


logger = _Logger(logging.getLogger("django_pgqueue"))


_FIELDS = ("job_id", "generation", "task", "queue", "worker")


def about(event: str, job: object = None) -> dict[str, Any]:
    """Return the `extra` of a line: its event, and whose job it is about (a lease, say); never a payload."""
    found = ((name, getattr(job, name, None)) for name in _FIELDS)
    return {"event": event, **{name: value for name, value in found if value is not None}}

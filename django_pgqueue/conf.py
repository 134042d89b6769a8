"""The settings of this app: the only module that reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from . import bounds
from .retry import Backoff, RetryPolicy
from .states import MAX_QUEUE_NAME, Fencing

BACKEND_PATH = "django_pgqueue.backend.PgQueueBackend"
_DURATIONS = {
    "lease": bounds.LEASE,
    "heartbeat": bounds.HEARTBEAT,
    "poll_interval": bounds.POLL_INTERVAL,
    "keep_done": bounds.KEEP_DONE,
    "keep_failed": bounds.KEEP_FAILED,
    "timeout": bounds.TIMEOUT,
}
_OPTIONAL = ("heartbeat", "timeout", "keep_done", "keep_failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`TASKS[alias]["OPTIONS"]`, upper case there. Times are `timedelta`.

    Raises ImproperlyConfigured, naming the option, its value and the cure, for anything out of its domain.
    """

    database: str | None = None
    lease: timedelta = bounds.LEASE.default
    heartbeat: timedelta | None = bounds.HEARTBEAT.default
    max_attempts: int = bounds.MAX_ATTEMPTS.default
    backoff: RetryPolicy = field(default_factory=Backoff)
    fencing: Fencing = Fencing.TOKEN
    poll_interval: timedelta = bounds.POLL_INTERVAL.default
    listen: bool = True
    keep_done: timedelta | None = bounds.KEEP_DONE.default
    keep_failed: timedelta | None = bounds.KEEP_FAILED.default
    timeout: timedelta | None = bounds.TIMEOUT.default

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ImproperlyConfigured(problem)
        object.__setattr__(self, "fencing", Fencing(self.fencing))  # as settings have it, it is a str

    @property
    def beat(self) -> timedelta:
        """Time between two renewals: HEARTBEAT, or a third of the lease."""
        return self.heartbeat or self.lease / 3

    def _problems(self) -> Iterator[str]:
        for name, bound in _DURATIONS.items():
            value = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            if not isinstance(value, timedelta):
                yield f"{name.upper()} must be a datetime.timedelta, not {value!r}"
            elif name == "lease" and value > bound.most:
                yield f"LEASE must be at most {bound.most}, not {value}"
            elif not bound.holds(value):
                yield f"{name.upper()} must be at least {bound.least} and at most {bound.most}, not {value}"
        if self.heartbeat is not None and self.heartbeat * 2 > self.lease:
            yield (
                f"HEARTBEAT ({self.heartbeat}) must be at most half of LEASE ({self.lease}), "
                "or a healthy job would lose its lease; a third is the default"
            )
        if not isinstance(self.max_attempts, int) or isinstance(self.max_attempts, bool):
            yield f"MAX_ATTEMPTS must be a whole number, not {self.max_attempts!r}"
        elif not bounds.MAX_ATTEMPTS.holds(self.max_attempts):
            yield f"MAX_ATTEMPTS must be between 1 and {bounds.MAX_ATTEMPTS.most}, not {self.max_attempts}"
        if self.fencing not in Fencing.values:
            yield f"FENCING must be one of {', '.join(Fencing.values)}, not {self.fencing!r}"
        if not isinstance(self.listen, bool):
            yield f"LISTEN must be True or False, not {self.listen!r}"
        if not (isinstance(self.backoff, Backoff) or callable(self.backoff)):
            yield f"BACKOFF must be a Backoff or a callable of (attempt, exception), not {self.backoff!r}"
        if self.database is not None and self.database not in list(settings.DATABASES):
            yield f"DATABASE must be one of DATABASES ({', '.join(settings.DATABASES)}), not {self.database!r}"


def read_options(alias: str, raw: Mapping[str, Any]) -> Options:
    """Return the options of the backend `alias`. Raises ImproperlyConfigured, naming the option."""
    known = {item.name.upper(): item.name for item in fields(Options)}
    if not isinstance(raw, Mapping):
        raise ImproperlyConfigured(f"TASKS[{alias!r}]['OPTIONS'] must be a dict, not {raw!r}")
    unknown = sorted(str(key) for key in raw if key not in known)
    try:
        if unknown:
            raise ImproperlyConfigured(
                f"unknown option {', '.join(unknown)}; the options are {', '.join(sorted(known))}"
            )
        return Options(**{known[key]: value for key, value in raw.items()})
    except ImproperlyConfigured as error:
        raise ImproperlyConfigured(f"TASKS[{alias!r}]['OPTIONS']: {error}") from None


def backend_aliases() -> list[str]:
    """Return the aliases in TASKS whose backend is this package's, or a subclass of it."""
    tasks = getattr(settings, "TASKS", None) or {}
    return [alias for alias, params in tasks.items() if _is_ours(params.get("BACKEND"))]


@lru_cache(maxsize=32)
def _is_ours(path: str | None) -> bool:
    if path is None or path == BACKEND_PATH:
        return path == BACKEND_PATH
    try:
        backend = import_string(path)
    except ImportError:
        return False  # Django says so when the backend is used
    return any(f"{base.__module__}.{base.__qualname__}" == BACKEND_PATH for base in backend.__mro__)


def queues_of(alias: str) -> set[str]:
    """Return the QUEUES of one backend; an empty set means that any queue name is allowed."""
    return set(_raw_queues(alias)) if queues_problem(alias) is None else set()


def queues_problem(alias: str) -> str | None:
    """Say what is wrong with the QUEUES of one backend; a str would be taken as one queue per letter."""
    queues = _raw_queues(alias)
    is_list = isinstance(queues, list | tuple | set | frozenset)
    if is_list and all(isinstance(name, str) and 0 < len(name) <= MAX_QUEUE_NAME for name in queues):
        return None
    return f"TASKS[{alias!r}]['QUEUES'] must be a list of names of 1 to {MAX_QUEUE_NAME} characters, not {queues!r}"


def _raw_queues(alias: str) -> Any:
    return settings.TASKS[alias].get("QUEUES", ["default"])


def raw_options(alias: str) -> Mapping[str, Any]:
    """Return the OPTIONS of one backend as written in the settings."""
    params: Mapping[str, Any] = settings.TASKS[alias]
    options: Mapping[str, Any] = params.get("OPTIONS", {})
    return options


def configured_database() -> str | None:
    """Return the DATABASE option, if all of this queue's backends have the same; else None."""
    options = [raw_options(alias) for alias in backend_aliases()]
    given = [item.get("DATABASE") if isinstance(item, Mapping) else None for item in options]
    return given[0] if given and all(item == given[0] for item in given) else None

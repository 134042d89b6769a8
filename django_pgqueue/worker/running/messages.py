"""What a parent and its child processes say to each other. Times are seconds on the system's monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from ...lease import Key, Lease
from ...outcomes import Ending, Settled
from ...retry import Backoff
from ...states import Fencing


class Word(Enum):
    """What is said without more."""

    RECALL = "parent: give back what you have not begun"
    STOP = "parent: leave after what you were given"
    READY = "child: started, and free"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Parent: run these jobs, in order."""

    leases: list[Lease]
    sent_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """Parent: what is known now of a lease."""

    key: Key
    deadline: float
    lost: bool
    cancel_requested: bool
    stopping: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """Parent: tell receivers of signals that this job has ended."""

    settled: Settled


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """Child: these jobs will not be begun here."""

    keys: frozenset[Key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """Child: the job has ended its own lease, with this result (JSON text), and that is committed."""

    key: Key
    result: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnOptions:
    """Child: the task's own options for this job.

    Of its retry policy only what can be sent: no function of the user's, whose code the parent must not run,
    and of `no_retry` whether the deaths that the parent tells of are meant.
    """

    key: Key
    duration: timedelta
    fencing: Fencing
    timeout: float | None
    retry: Backoff | None
    no_retry: tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Child: how a job shall end (None: it needs no ending), after so many seconds."""

    key: Key
    ending: Ending | None
    seconds: float

    @classmethod
    def of(cls, key: Key, ending: Ending | None, seconds: float) -> Result:
        """Return the message of an ending, without the exception itself, which may not be picklable."""
        if ending is not None and ending.cause is not None:
            ending = ending._replace(cause=None)
        return cls(key=key, ending=ending, seconds=seconds)

"""How a worker ends an attempt: complete, fail, release, each one fenced UPDATE."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import DatabaseError, connections, transaction

from ..bounds import RETRY_DELAY
from ..database import queue_database
from ..faults import is_about_data
from ..lease import Key, Lease, columns
from ..log import about, logger
from ..models import Failure
from ..payloads import ErrorText, encode_result, render_exception
from ..rejections import record
from ..sql import ending as statements
from ..states import Action, Kind, State, Verdict
from ..verdicts import Refused, sort_out

# The new state and the end of what was accepted.
Accepted = dict[Key, tuple[str, datetime | None]]
UNSTORABLE = ErrorText(
    exception_class="django_pgqueue.exceptions.InvalidPayload",
    message="The outcome of this attempt could not be stored.",
    traceback="",
)
# How often the blocking form looks again at a row that changed nothing and yet is still owned.
_TRIES = 50


class Ending(NamedTuple):
    """What shall become of a leased job: the state it goes to and what is kept of the attempt.

    `delay` is for `scheduled` only; `gives_back` returns the attempt; `result` is JSON text;
    `cause` is the exception itself, for receivers of signals. A tuple, because every job makes one.
    """

    lease: Lease
    action: Action
    state: State
    delay: timedelta | None = None
    gives_back: bool = False
    result: str | None = None
    kind: Kind | None = None
    error: ErrorText | None = None
    cause: BaseException | None = None

    @classmethod
    def done(cls, lease: Lease, result: str | None = None) -> Ending:
        """Return the ending of a job that is done; `result` is JSON text or None."""
        return cls(lease=lease, action=Action.COMPLETE, state=State.DONE, result=result)

    @classmethod
    def failed(
        cls,
        lease: Lease,
        error: ErrorText,
        delay: timedelta | None,
        kind: Kind = Kind.ERROR,
        cause: BaseException | None = None,
    ) -> Ending:
        """Return the ending of a failed attempt: another one after `delay`, or none if that is None."""
        if kind == Kind.CANCELLED:
            state = State.CANCELLED
        elif delay is None:
            state = State.FAILED
        else:
            delay = min(delay, RETRY_DELAY.most)
            state = State.SCHEDULED if delay > timedelta(0) else State.READY
        return cls(
            lease=lease, action=Action.FAIL, state=state, delay=delay, kind=kind, error=error, cause=cause
        )

    @classmethod
    def released(cls, lease: Lease) -> Ending:
        """Return the ending that gives an unrun job back, with its attempt."""
        return cls(lease=lease, action=Action.RELEASE, state=State.READY, gives_back=True)

    @classmethod
    def snoozed(cls, lease: Lease, delay: timedelta) -> Ending:
        """Return the ending that runs the job again after `delay` without using up the attempt."""
        delay = min(max(delay, timedelta(0)), RETRY_DELAY.most)
        return cls(lease=lease, action=Action.RELEASE, state=State.SCHEDULED, delay=delay, gives_back=True)


class Settled(NamedTuple):
    """The reply to one ending: its verdict, the state the job went to if accepted, or `busy` if its row was locked."""

    ending: Ending
    verdict: Verdict | None = None
    state: str | None = None
    finished_at: datetime | None = None

    @property
    def busy(self) -> bool:
        """Whether the row was locked by somebody: ask again with the same generation."""
        return self.verdict is None


class Spent(NamedTuple):
    """A job that ended because its last lease expired, by nobody's write: the columns of EXHAUST."""

    job_id: int
    generation: int
    state: str
    task: str
    queue: str
    backend: str


def end(endings: Sequence[Ending], *, using: str, wait: bool = False) -> Accepted:
    """End these jobs in one statement and record their failures; return the accepted ones.

    With `wait` a locked row is waited for, else it is skipped. At most one ending per lease. The caller provides the
    transaction if failures are among them, and settles the rest with `settle`.
    """
    if not endings:
        return {}
    ordered = sorted(endings, key=lambda ending: ending.lease.job_id)
    plain = all(map(_is_plain, ordered))
    given = columns([item.lease for item in ordered])
    if not plain:
        given |= {
            "states": [str(item.state) for item in ordered],
            "stricts": [item.lease.is_strict for item in ordered],
            "gives_back": [item.gives_back for item in ordered],
            "delays": [item.delay for item in ordered],
            "results": [item.result for item in ordered],
        }
    with connections[using].cursor() as cursor:
        cursor.execute(_STATEMENTS[plain, wait], given)
        accepted = {(row[0], row[1]): (str(row[2]), row[3]) for row in cursor.fetchall()}
    failures = [_failure(item, item.kind) for item in ordered if item.kind and item.lease.key in accepted]
    if failures:
        Failure.objects.using(using).bulk_create(failures)
    return accepted


def _is_plain(ending: Ending) -> bool:
    """Whether the job is done, without a result, and its lease may have expired."""
    return ending.action == Action.COMPLETE and ending.result is None and not ending.lease.is_strict


_STATEMENTS = {
    (plain, wait): statements.END.format(
        endings=statements.ENDINGS_DONE if plain else statements.ENDINGS, wait="" if wait else "SKIP LOCKED"
    )
    for plain in (False, True)
    for wait in (False, True)
}


def _failure(ending: Ending, kind: Kind) -> Failure:
    error = ending.error or ErrorText(exception_class="", message="", traceback="")
    return Failure(
        job_id=ending.lease.job_id,
        generation=ending.lease.generation,
        kind=kind,
        worker=ending.lease.worker,
        exception_class=error.exception_class,
        message=error.message,
        traceback=error.traceback,
    )


def end_singly(endings: Sequence[Ending], *, using: str) -> Accepted:
    """End one by one, each in its own transaction, after the database refused the batch's data.

    One that is refused again gets a constant text instead of its outcome: recording must not fail.
    Raises DatabaseError if the data is not the problem.
    """
    accepted: Accepted = {}
    for item in endings:
        try:
            accepted |= _end_alone(item, using)
        except DatabaseError as error:
            if not is_about_data(error):
                raise
            logger.exception(
                "The outcome of job %s could not be stored",
                item.lease.job_id,
                extra=about("unstorable", item.lease),
            )
            accepted |= _end_alone(Ending.failed(item.lease, UNSTORABLE, None), using)
    return accepted


def _end_alone(ending: Ending, using: str) -> Accepted:
    with transaction.atomic(using=using):
        return end([ending], using=using)


def settle(endings: Sequence[Ending], accepted: Accepted, *, using: str) -> list[Settled]:
    """Give every ending its verdict, reading the rows of those that changed nothing; record the refused ones."""
    replies: list[Settled] = []
    rest: dict[Action, list[Ending]] = {}
    for item in endings:
        if item.lease.key in accepted:
            state, finished_at = accepted[item.lease.key]
            replies.append(
                Settled(ending=item, verdict=Verdict.ACCEPTED, state=state, finished_at=finished_at)
            )
        else:
            rest.setdefault(item.action, []).append(item)
    refused: list[Refused] = []
    for action, asked in rest.items():
        judged = sort_out([item.lease for item in asked], action, using=using)
        replies += [
            Settled(
                ending=item,
                verdict=reply.verdict,
                state=reply.state_left,
                finished_at=reply.observed.finished_at if reply.state_left and reply.observed else None,
            )
            if reply
            else Settled(ending=item)
            for item, reply in zip(asked, judged, strict=True)
        ]
        refused += [reply for reply in judged if reply and reply.verdict.is_rejection]
    record(refused, using=using)
    return replies


def complete(lease: Lease, result: Any = None, *, using: str | None = None) -> Verdict:
    """End the job as done. Inside a transaction, a rejection means that it must be rolled back.

    Waits for a session that holds the row, then decides on what the row says. Raises InvalidPayload if
    JSON cannot hold `result`.
    """
    return _end_one(Ending.done(lease, encode_result(result)), using)


def fail(
    lease: Lease, error: BaseException, *, delay: timedelta | None = None, using: str | None = None
) -> Verdict:
    """Record a failed attempt; the job runs again after `delay`, or has failed for good if that is None."""
    return _end_one(Ending.failed(lease, render_exception(error), delay), using)


def release(lease: Lease, *, delay: timedelta | None = None, using: str | None = None) -> Verdict:
    """Give the job back with its attempt, at the same generation: ready at once, or scheduled after `delay`."""
    return _end_one(Ending.released(lease) if delay is None else Ending.snoozed(lease, delay), using)


def _end_one(ending: Ending, using: str | None) -> Verdict:
    using = queue_database(using)
    for _ in range(_TRIES):
        with transaction.atomic(using=using):
            accepted = end([ending], using=using, wait=True)
        (reply,) = settle([ending], accepted, using=using)
        if reply.verdict is not None:
            return reply.verdict
        threading.Event().wait(0.01)  # the row changed between the two statements, and is ours again
    raise RuntimeError(f"job {ending.lease.job_id} was locked again and again")

"""How a worker ends an attempt: complete, fail, release, each one fenced UPDATE."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connections, transaction

from .. import sql
from ..leases import Lease, sort_out
from ..models import Failure
from ..payloads import ErrorText, encode_result, render_exception
from ..rejections import Refused, queue_database, record
from ..retry import LONGEST
from ..states import Action, Fencing, Kind, State, Verdict

# How often the blocking form looks again at a row that changed nothing and yet is still owned.
_TRIES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What shall become of a leased job: the state it goes to and what is kept of the attempt.

    `delay` is for `scheduled` only; `gives_back` returns the attempt; `result` is JSON text;
    `cause` is the exception itself, for receivers of signals.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The reply to one ending: its verdict, the state the job went to if accepted, or `busy` if its row was locked."""

    ending: Ending
    verdict: Verdict | None = None
    state: str | None = None
    finished_at: datetime | None = None

    @property
    def busy(self) -> bool:
        """Whether the row was locked by somebody: ask again with the same generation."""
        return self.verdict is None


def completed(lease: Lease, result: str | None = None) -> Ending:
    """Return the ending of a job that is done; `result` is JSON text or None."""
    return Ending(lease=lease, action=Action.COMPLETE, state=State.DONE, result=result)


def failed(
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
        delay = min(delay, LONGEST)
        state = State.SCHEDULED if delay > timedelta(0) else State.READY
    return Ending(
        lease=lease, action=Action.FAIL, state=state, delay=delay, kind=kind, error=error, cause=cause
    )


def released(lease: Lease) -> Ending:
    """Return the ending that gives an unrun job back, with its attempt."""
    return Ending(lease=lease, action=Action.RELEASE, state=State.READY, gives_back=True)


def snoozed(lease: Lease, delay: timedelta) -> Ending:
    """Return the ending that runs the job again after `delay` without using up the attempt."""
    delay = min(max(delay, timedelta(0)), LONGEST)
    return Ending(lease=lease, action=Action.RELEASE, state=State.SCHEDULED, delay=delay, gives_back=True)


def end(
    endings: Sequence[Ending], *, using: str, wait: bool = False
) -> dict[tuple[int, int], tuple[str, datetime | None]]:
    """End these jobs in one statement and record their failures.

    Returns {(job id, generation): (new state, finished at)} of the accepted ones. With `wait` a locked row is
    waited for, else it is skipped. At most one ending per lease. The caller provides the transaction if
    failures are among them, and settles the rest with `settle`.
    """
    if not endings:
        return {}
    ordered = sorted(endings, key=lambda ending: ending.lease.job_id)
    plain = all(map(_is_plain, ordered))
    given: dict[str, list[Any]] = {
        "ids": [item.lease.job_id for item in ordered],
        "generations": [item.lease.generation for item in ordered],
    }
    if not plain:
        given |= {
            "states": [str(item.state) for item in ordered],
            "stricts": [item.lease.fencing == Fencing.STRICT for item in ordered],
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
    return (
        ending.action == Action.COMPLETE and ending.result is None and ending.lease.fencing == Fencing.TOKEN
    )


_STATEMENTS = {
    (plain, wait): sql.END.format(
        endings=sql.ENDINGS_DONE if plain else sql.ENDINGS, wait="" if wait else "SKIP LOCKED"
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


def settle(
    endings: Sequence[Ending],
    accepted: dict[tuple[int, int], tuple[str, datetime | None]],
    *,
    using: str,
) -> list[Ended]:
    """Give every ending its verdict, reading the rows of those that changed nothing; record the refused ones."""
    replies: list[Ended] = []
    rest: dict[Action, list[Ending]] = {}
    for item in endings:
        if item.lease.key in accepted:
            state, finished_at = accepted[item.lease.key]
            replies.append(Ended(ending=item, verdict=Verdict.ACCEPTED, state=state, finished_at=finished_at))
        else:
            rest.setdefault(item.action, []).append(item)
    refused: list[Refused] = []
    for action, asked in rest.items():
        judged = sort_out([item.lease for item in asked], action, using=using)
        replies += [
            Ended(
                ending=item,
                verdict=reply.verdict,
                state=reply.state_left,
                finished_at=reply.observed.finished_at if reply.state_left and reply.observed else None,
            )
            if reply
            else Ended(ending=item)
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
    return _end_one(completed(lease, encode_result(result)), using)


def fail(
    lease: Lease, error: BaseException, *, delay: timedelta | None = None, using: str | None = None
) -> Verdict:
    """Record a failed attempt; the job runs again after `delay`, or has failed for good if that is None."""
    return _end_one(failed(lease, render_exception(error), delay), using)


def release(lease: Lease, *, delay: timedelta | None = None, using: str | None = None) -> Verdict:
    """Give the job back with its attempt, at the same generation: ready at once, or scheduled after `delay`."""
    return _end_one(released(lease) if delay is None else snoozed(lease, delay), using)


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

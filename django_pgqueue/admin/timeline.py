"""What happened to one job, in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Func, QuerySet, TextField
from django.db.models.functions import Left, Right
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..models import Failure, Rejection
from ..models.fields import TextArrayField
from ..states import LIVE_STATES, Action, Kind, State, Verdict
from .durations import spoken

# The newest of each that one page shows; the lists have the rest.
SHOWN = 50
MESSAGE_CHARS = 2_000
TRACEBACK_CHARS = 8_000


class LastItem(Func):
    """The last item of a text[]."""

    template = "(%(expressions)s)[cardinality(%(expressions)s)]"
    arity = 1
    output_field = TextField()


class LastItems(Func):
    """The last SHOWN items of a text[]."""

    template = f"(%(expressions)s)[GREATEST(cardinality(%(expressions)s) - {SHOWN - 1}, 1):]"
    arity = 1
    output_field = TextArrayField()


class Cardinality(Func):
    """How many items an array has."""

    function = "cardinality"
    arity = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened; `at` is None where the database does not tell."""

    at: datetime | None
    tone: str
    title: str
    detail: str = ""
    worker: str = ""
    traceback: str = ""


def failures_of(job: Any, using: str) -> list[Any]:
    """Return the newest failures of the job and one more, newest first, with shortened texts."""
    rows = Failure.objects.using(using).filter(job_id=job.pk).order_by("-pk")
    return list(
        rows.defer("message", "traceback").annotate(
            message_start=Left("message", MESSAGE_CHARS), traceback_end=Right("traceback", TRACEBACK_CHARS)
        )[: SHOWN + 1]
    )


def rejections_of(job: Any, using: str) -> list[Rejection]:
    """Return the newest refused writes to the job and one more, newest first."""
    rows: QuerySet[Rejection] = Rejection.objects.using(using).filter(job_id=job.pk)
    return list(rows.order_by("-pk")[: SHOWN + 1])


def events(
    job: Any,
    *,
    workers: Sequence[str],
    claims: int,
    failures: Iterable[Any],
    rejections: Iterable[Rejection],
) -> list[Event]:
    """Return what happened to the job, oldest first.

    `workers` are the last of its `claims` worker ids. A claim that is neither the first, nor the last, nor a
    reclaim has no time of its own: it stands after the failure of the generation before.
    """
    failed_at: dict[int, datetime] = {}
    reclaimed_at: dict[int, datetime] = {}
    for failure in failures:
        failed_at[failure.generation] = max(failure.at, failed_at.get(failure.generation, failure.at))
        if failure.kind == Kind.LEASE_EXPIRED:  # written by the reclaim itself
            reclaimed_at[failure.generation + 1] = failure.at
    placed: list[tuple[datetime, int, int, Event]] = [(job.enqueued_at, 0, 0, _enqueued(job))]
    position = job.enqueued_at
    if claims > len(workers):
        placed.append((position, 1, 0, _left_out(claims - len(workers))))
    for generation, worker in enumerate(workers, start=claims - len(workers) + 1):
        at = _claimed_at(job, generation, claims) or reclaimed_at.get(generation)
        position = max(position, at or failed_at.get(generation - 1, position))
        placed.append((position, 3, generation, _claimed(generation, worker, at)))
    placed += [(item.at, 2, item.generation, _failed(item)) for item in failures]
    placed += [(item.at, 5, item.pk, _rejected(item)) for item in rejections]
    if job.cancel_requested_at:
        placed.append((job.cancel_requested_at, 4, 0, _cancel_requested(job)))
    if job.state not in LIVE_STATES:
        position = max(position, job.finished_at or position, failed_at.get(claims, position))
        placed.append((position, 4, 1, _ended(job)))
    return [event for *_key, event in sorted(placed, key=lambda entry: entry[:3])]


def _claimed_at(job: Any, generation: int, claims: int) -> datetime | None:
    if generation == claims:
        return job.last_attempted_at or (job.started_at if generation == 1 else None)
    return job.started_at if generation == 1 else None


def _enqueued(job: Any) -> Event:
    delay = job.run_after - job.enqueued_at
    waits = delay > timedelta(seconds=1) and not job.generation
    return Event(
        at=job.enqueued_at,
        tone="plain",
        title=_("Enqueued"),
        detail=_("to run %(delay)s later") % {"delay": spoken(delay)} if waits else "",
    )


def _claimed(generation: int, worker: str, at: datetime | None) -> Event:
    title = _("Claimed as generation %(generation)s") % {"generation": generation}
    return Event(at=at, tone="running", title=title, worker=worker or "")


def _failed(failure: Any) -> Event:
    label = Kind(failure.kind).label if failure.kind in Kind.values else failure.kind
    text = ": ".join(filter(None, (failure.exception_class, failure.message_start)))
    return Event(
        at=failure.at,
        tone="failed",
        title=_("Attempt of generation %(generation)s failed: %(kind)s")
        % {"generation": failure.generation, "kind": label},
        detail=text,
        worker=failure.worker,
        traceback=failure.traceback_end,
    )


def _rejected(rejection: Rejection) -> Event:
    action = Action(rejection.action).label if rejection.action in Action.values else rejection.action
    verdict = Verdict(rejection.verdict).label if rejection.verdict in Verdict.values else rejection.verdict
    detail = []
    if rejection.current_generation is not None:
        detail.append(_("the job was at generation %(current)s") % {"current": rejection.current_generation})
    if rejection.late_by is not None:
        detail.append(_("%(time)s too late") % {"time": spoken(rejection.late_by)})
    return Event(
        at=rejection.at,
        tone="rejected",
        title=_("Refused: %(action)s by generation %(generation)s, %(verdict)s")
        % {"action": action, "generation": rejection.generation, "verdict": verdict},
        detail=", ".join(detail),
        worker=rejection.worker,
    )


def _left_out(count: int) -> Event:
    title = ngettext(
        "%(count)s earlier attempt is not shown", "%(count)s earlier attempts are not shown", count
    )
    return Event(at=None, tone="plain", title=title % {"count": count})


def _cancel_requested(job: Any) -> Event:
    return Event(at=job.cancel_requested_at, tone="cancelled", title=_("Cancellation requested"))


def _ended(job: Any) -> Event:
    known = job.state in State.values
    label = State(job.state).label if known else job.state
    tone = job.state if known else "plain"
    return Event(at=job.finished_at, tone=tone, title=_("Ended as %(state)s") % {"state": label})

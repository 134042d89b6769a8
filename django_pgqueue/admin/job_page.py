"""What one job's page shows beside its columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db.models import Case, F, IntegerField, TextField, Value, When
from django.db.models.functions import Cast, Length
from django.utils.translation import gettext as _

from ..database import queue_database
from ..models import Job
from ..states import FINISHED_STATES, LIVE_STATES, State
from . import json_text, operations, timeline
from .columns import admin_url, cut

# JSON up to this size is shown, its beginning at least; more is left to the download.
SHOWN_BYTES = 1024 * 1024
SHOWN_CHARS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A JSON column as the page shows it."""

    title: str
    text: str
    note: str
    url: str


def context(job: Any, *, redact: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the page's arguments, result and timeline: three queries, each with a bound."""
    using = queue_database()
    columns = _columns(job, using)
    failures, rejections = timeline.failures_of(job, using), timeline.rejections_of(job, using)
    return {
        "documents": [
            _document(job, "payload", _("Arguments"), columns, redact),
            _document(job, "result", _("Result"), columns, redact),
        ],
        "events": timeline.events(
            job,
            workers=columns["last_workers"] or [],
            claims=columns["claims"] or 0,
            failures=failures[: timeline.SHOWN],
            rejections=rejections[: timeline.SHOWN],
        ),
        "failures_url": admin_url("failure_changelist", job=job.pk),
        "rejections_url": admin_url("rejection_changelist", job=job.pk),
        "more_failures": len(failures) > timeline.SHOWN,
        "more_rejections": len(rejections) > timeline.SHOWN,
        "shown": timeline.SHOWN,
    }


def verbs(job: Any) -> list[operations.Verb]:
    """Return what can be done to the job in its present state; the transition itself decides."""
    fitting = []
    if job.state in FINISHED_STATES:
        fitting.append(operations.RETRY)
    if job.state == State.SCHEDULED:
        fitting.append(operations.RUN_NOW)
    if job.state in LIVE_STATES and not (job.state == State.RUNNING and job.cancel_requested_at):
        fitting.append(operations.CANCEL)
    return fitting


def download(job_id: int, column: str, *, redact: Callable[[Any], Any]) -> str | None:
    """Return all of a JSON column as text, without what `redact` hides; None if there is no such job."""
    text = (
        Job.objects.using(queue_database())
        .filter(pk=job_id)
        .annotate(text=Cast(column, TextField()))
        .values_list("text", flat=True)
        .first()
    )
    return None if text is None else _readable(text, redact)


def _columns(job: Any, using: str) -> dict[str, Any]:
    def size(column: str) -> Length:
        return Length(Cast(column, TextField()))

    def text(column: str) -> Case:
        whole = When(**{f"{column}_size__lte": SHOWN_BYTES}, then=Cast(column, TextField()))
        return Case(whole, default=Value(""), output_field=TextField())

    row = (
        Job.objects.using(using)
        .filter(pk=job.pk)
        .annotate(payload_size=size("payload"), result_size=size("result"))
        .annotate(
            payload_text=text("payload"),
            result_text=text("result"),
            last_workers=timeline.LastItems(F("worker_ids")),
            claims=timeline.Cardinality(F("worker_ids"), output_field=IntegerField()),
        )
        .values("payload_size", "payload_text", "result_size", "result_text", "last_workers", "claims")
        .first()
    )
    empty = {"payload_size": None, "payload_text": "", "result_size": None, "result_text": ""}
    return dict(row) if row else {**empty, "last_workers": [], "claims": 0}


def _document(
    job: Any, column: str, title: str, columns: dict[str, Any], redact: Callable[[Any], Any]
) -> Document:
    size = columns[f"{column}_size"]
    if size is None:
        return Document(title=title, text="", note=_("None"), url="")
    url = admin_url("job_download", job.pk, column)
    if size > SHOWN_BYTES:
        return Document(
            title=title, text="", note=_("Too large to show: %(size)s bytes.") % {"size": size}, url=url
        )
    text = _readable(columns[f"{column}_text"], redact)
    note = ""
    if len(text) > SHOWN_CHARS:
        note = _("Only the beginning is shown, %(shown)s of %(all)s characters.") % {
            "shown": SHOWN_CHARS,
            "all": len(text),
        }
    return Document(title=title, text=cut(text, SHOWN_CHARS), note=note, url=url)


def _readable(text: str, redact: Callable[[Any], Any]) -> str:
    try:
        return json_text.indented(redact(json_text.parsed(text)))
    except RecursionError:
        return _("This is nested too deep to be shown.")

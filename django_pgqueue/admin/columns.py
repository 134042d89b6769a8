"""What the columns of the lists and the fields of the pages say. All text from the data is escaped.

A row is a model instance with `clock`, the database's time of the query; lists of jobs add `last_worker` and
`refused_endings`.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..states import Action, Kind, State, Verdict
from .durations import spoken

NOTHING = "-"
SHOWN_WORKER = 60


def badge(word: str, choices: Any, *, tone: str = "") -> str:
    """Return `word` as a badge; a word of a newer version is shown as it is."""
    known = word in choices.values
    label = choices(word).label if known else word
    return format_html('<span class="pgqueue-badge pgqueue-{}">{}</span>', tone or (word if known else "unknown"), label)


def admin_url(page: str, *args: Any, **query: Any) -> str:
    """Return the address of one of this app's admin pages; numbers are never localised in it."""
    url = reverse(f"admin:django_pgqueue_{page}", args=[str(arg) for arg in args])
    return f"{url}?{urlencode(query)}" if query else url


def cut(text: str, limit: int) -> str:
    """Return `text`, or its beginning and an ellipsis."""
    return text if len(text) <= limit else f"{text[:limit]}…"


@admin.display(description=gettext_lazy("id"))
def number(row: Any) -> str:
    """The id as digits only, whatever the locale."""
    return str(row.pk)


@admin.display(description=gettext_lazy("state"))
def state(job: Any) -> str:
    """The state, and whether its owner was asked to stop."""
    shown = badge(job.state, State)
    if job.state == State.RUNNING and job.cancel_requested_at:
        return format_html('{} <span class="pgqueue-quiet">{}</span>', shown, _("cancellation requested"))
    return shown


@admin.display(description=gettext_lazy("age"))
def age(job: Any) -> str:
    """Waiting since run_after, running since its claim, or ended since finished_at."""
    if job.state in (State.READY, State.SCHEDULED):
        since, phrase = job.run_after, _("waiting %(age)s")
        if since and since > job.clock:
            phrase = _("due in %(age)s")
    elif job.state == State.RUNNING:
        since, phrase = job.last_attempted_at, _("running %(age)s")
    else:
        since, phrase = job.finished_at, _("ended %(age)s ago")
    if since is None:
        return NOTHING
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        since.isoformat(),
        since.isoformat(sep=" ", timespec="milliseconds"),
        phrase % {"age": spoken(job.clock - since)},
    )


@admin.display(description=gettext_lazy("generation"))
def generation(job: Any) -> str:
    """How often the job was claimed."""
    return str(job.generation)


@admin.display(description=gettext_lazy("attempts"))
def attempts(job: Any) -> str:
    """Runs so far, of the most allowed."""
    return _("%(attempts)s of %(max_attempts)s") % {
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
    }


@admin.display(description=gettext_lazy("lease"))
def lease(job: Any) -> str:
    """What is left of the lease, or how long ago it expired, by the database's clock."""
    if job.lease_until is None:
        return NOTHING
    left = job.lease_until - job.clock
    if left.total_seconds() >= 0:
        return _("%(time)s left") % {"time": spoken(left)}
    return format_html('<span class="pgqueue-late">{}</span>', _("expired %(time)s ago") % {"time": spoken(left)})


@admin.display(description=gettext_lazy("worker"))
def last_worker(job: Any) -> str:
    """The worker of the newest generation."""
    return worker_name(job.last_worker)


@admin.display(description=gettext_lazy("worker"))
def worker(row: Any) -> str:
    """The worker of a record."""
    return worker_name(row.worker)


def worker_name(name: str | None) -> str:
    """Return a worker's name, shortened; the title has all of it."""
    if not name:
        return NOTHING
    return format_html('<span class="pgqueue-worker" title="{}">{}</span>', name[:500], cut(name, SHOWN_WORKER))


@admin.display(description=gettext_lazy("rejected completions"))
def refused_endings(job: Any) -> str:
    """How many attempts to complete or fail the job were refused, with a link to them."""
    if not job.refused_endings:
        return "0"
    url = admin_url("rejection_changelist", job=job.pk, action="endings")
    return format_html('<a class="pgqueue-count" href="{}">{}</a>', url, str(job.refused_endings))


@admin.display(description=gettext_lazy("job"))
def job_link(row: Any) -> str:
    """The job's id, linked to its page."""
    return format_html('<a href="{}">{}</a>', admin_url("job_change", row.job_id), str(row.job_id))


@admin.display(description=gettext_lazy("task"))
def task_of(failure: Any) -> str:
    """The task of a record's job."""
    return str(failure.job.task)


@admin.display(description=gettext_lazy("verdict"))
def verdict(rejection: Any) -> str:
    """Why the write was refused."""
    return badge(rejection.verdict, Verdict, tone="failed")


@admin.display(description=gettext_lazy("refused write"))
def action(rejection: Any) -> str:
    """Which write was refused."""
    return badge(rejection.action, Action, tone="plain")


@admin.display(description=gettext_lazy("kind"))
def kind(failure: Any) -> str:
    """Why the attempt failed."""
    return badge(failure.kind, Kind, tone="failed")


@admin.display(description=gettext_lazy("generation"))
def against(rejection: Any) -> str:
    """The writer's generation, and the job's at that moment."""
    if rejection.current_generation is None:
        return str(rejection.generation)
    return _("%(generation)s against %(current)s") % {
        "generation": rejection.generation,
        "current": rejection.current_generation,
    }


@admin.display(description=gettext_lazy("late by"))
def late_by(rejection: Any) -> str:
    """How long after the loss the write came."""
    return NOTHING if rejection.late_by is None else spoken(rejection.late_by)


@admin.display(description=gettext_lazy("when"))
def when(row: Any) -> str:
    """When it was recorded, by the database's clock."""
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        row.at.isoformat(),
        row.at.isoformat(sep=" ", timespec="milliseconds"),
        _("%(age)s ago") % {"age": spoken(row.clock - row.at)},
    )


@admin.display(description=gettext_lazy("message"))
def message(failure: Any) -> str:
    """The exception and the beginning of its message."""
    name = failure.exception_class.rpartition(".")[2]
    text = " ".join(cut(failure.message_start, 160).split())
    return cut(f"{name}: {text}" if name else text, 200)

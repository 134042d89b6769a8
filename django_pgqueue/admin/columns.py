"""What the columns of the lists and the fields of the pages say. All text from the data is escaped.

A row is a model instance with `clock`, the database's time of the query.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from .durations import spoken

NOTHING = "-"
SHOWN_WORKER = 40


def badge(word: str, choices: Any, *, tone: str = "") -> str:
    """Return `word` as a badge; a word of a newer version is shown as it is."""
    known = word in choices.values
    label = choices(word).label if known else word
    tone = tone or (word if known else "unknown")
    return format_html('<span class="pgqueue-badge pgqueue-{}">{}</span>', tone, label)


def admin_url(page: str, *args: Any, **query: Any) -> str:
    """Return the address of one of this app's admin pages; numbers are never localised in it."""
    url = reverse(f"admin:django_pgqueue_{page}", args=[str(arg) for arg in args])
    return f"{url}?{urlencode(query)}" if query else url


def cut(text: str, limit: int) -> str:
    """Return `text`, or its beginning and an ellipsis."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def timed(at: datetime, text: str) -> str:
    """Return `text` about the moment `at`, which the title tells exactly."""
    exact = at.isoformat(sep=" ", timespec="milliseconds")
    return format_html('<time datetime="{}" title="{}">{}</time>', at.isoformat(), exact, text)


def worker_name(name: str | None) -> str:
    """Return a worker's name, shortened; the title has all of it."""
    if not name:
        return NOTHING
    return format_html(
        '<span class="pgqueue-worker" title="{}">{}</span>', name[:500], cut(name, SHOWN_WORKER)
    )


@admin.display(description=gettext_lazy("id"))
def number(row: Any) -> str:
    """The id as digits only, whatever the locale."""
    return str(row.pk)


@admin.display(description=gettext_lazy("generation"))
def generation(row: Any) -> str:
    """The number of the claim."""
    return str(row.generation)


@admin.display(description=gettext_lazy("worker"))
def worker(row: Any) -> str:
    """The worker of a record."""
    return worker_name(row.worker)


@admin.display(description=gettext_lazy("job"))
def job_link(row: Any) -> str:
    """The job's id, linked to its page."""
    return format_html('<a href="{}">{}</a>', admin_url("job_change", row.job_id), str(row.job_id))


@admin.display(description=gettext_lazy("when"))
def when(row: Any) -> str:
    """When it was recorded, by the database's clock."""
    return timed(row.at, _("%(age)s ago") % {"age": spoken(row.clock - row.at)})

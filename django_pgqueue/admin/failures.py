"""Attempts that failed."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from ..models import Failure
from ..states import Kind, as_id
from . import columns, job_columns
from .base import ReadOnlyAdmin
from .filters import BeforeFilter, JobFilter, WordFilter

SHOWN_TRACEBACK = 100_000


@admin.display(description=_("task"))
def task_of(failure: Any) -> str:
    """The task of a record's job."""
    return job_columns.task(failure.job)


@admin.display(description=_("kind"))
def kind(failure: Any) -> str:
    """Why the attempt failed."""
    return columns.badge(failure.kind, Kind, tone="failed")


@admin.display(description=_("message"))
def message(failure: Any) -> str:
    """The exception and the beginning of its message."""
    name = failure.exception_class.rpartition(".")[2]
    text = " ".join(columns.cut(failure.message_start, 160).split())
    return columns.cut(f"{name}: {text}" if name else text, 200)


@admin.display(description=_("traceback"))
def traceback(failure: Any) -> str:
    """The traceback, cut only if something else than a worker wrote it."""
    return format_html('<pre class="pgqueue-pre">{}</pre>', columns.cut(failure.traceback, SHOWN_TRACEBACK))


@admin.display(description=_("message"))
def whole_message(failure: Any) -> str:
    """The exception's message."""
    return format_html('<pre class="pgqueue-pre">{}</pre>', columns.cut(failure.message, SHOWN_TRACEBACK))


class KindFilter(WordFilter):
    """By kind of failure."""

    title = _("kind")
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return the kinds."""
        return list(Kind.choices)


@admin.register(Failure)
class FailureAdmin(ReadOnlyAdmin):
    """Failed attempts: which job, which generation, and why."""

    large_columns = ("job__payload", "job__result", "job__worker_ids")
    list_display = [
        columns.number,
        columns.when,
        columns.job_link,
        task_of,
        columns.generation,
        kind,
        message,
        columns.worker,
    ]
    list_filter = [KindFilter, JobFilter, BeforeFilter]
    search_fields = ["job_id"]
    search_help_text = _("A job's id, or a part of the exception's name.")
    fieldsets = [
        (None, {"fields": [columns.job_link, task_of, "generation", kind, "worker", "at"]}),
        (_("Exception"), {"fields": ["exception_class", whole_message, traceback]}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the failures with their jobs."""
        return super().get_queryset(request).select_related("job")

    def listed(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the failures with the beginning of their messages."""
        light = queryset.defer("message", "traceback")
        with_start: QuerySet[Any] = light.annotate(message_start=Left("message", 200))
        return with_start

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find the rows of one job, or of an exception."""
        term = search_term.strip()
        job_id = as_id(term)
        if job_id is not None:
            return queryset.filter(job_id=job_id), False
        return (queryset.filter(exception_class__icontains=term) if term else queryset), False

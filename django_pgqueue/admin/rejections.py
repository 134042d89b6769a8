"""The ledger of refused writes."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from ..models import Rejection
from ..states import State
from . import columns
from .base import ReadOnlyAdmin
from .filters import ActionFilter, BeforeFilter, JobFilter, VerdictFilter, as_id


@admin.display(description=_("state of the job then"))
def seen_state(rejection: Any) -> str:
    """What the job's row said when the write was refused; nothing if it was gone."""
    return columns.badge(rejection.seen_state, State) if rejection.seen_state else columns.NOTHING


@admin.register(Rejection)
class RejectionAdmin(ReadOnlyAdmin):
    """Refused writes: who, which generation against which, and why."""

    list_display = [
        columns.number,
        columns.when,
        columns.job_link,
        columns.action,
        columns.verdict,
        columns.against,
        columns.late_by,
        seen_state,
        columns.worker,
    ]
    list_filter = [ActionFilter, VerdictFilter, JobFilter, BeforeFilter]
    search_fields = ["job_id"]
    search_help_text = _("A job's id, or the beginning of a worker's name.")
    fieldsets = [
        (None, {"fields": [columns.job_link, columns.action, columns.verdict, columns.against, columns.late_by]}),
        (_("What the job's row said then"), {"fields": [seen_state, "seen_lease_until"]}),
        (_("Record"), {"fields": ["worker", "at"]}),
    ]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find the rows of one job, or of workers whose name begins so."""
        term = search_term.strip()
        job_id = as_id(term)
        if job_id is not None:
            return queryset.filter(job_id=job_id), False
        return (queryset.filter(worker__startswith=term) if term else queryset), False

    def search_is_indexed(self, term: str) -> bool:
        """Whether a job's id is searched for."""
        return as_id(term) is not None

"""The ledger of refused writes."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..models import Rejection
from ..states import Action, State, Verdict, as_id
from . import columns
from .base import ReadOnlyAdmin
from .durations import spoken
from .filters import BeforeFilter, JobFilter, WordFilter


@admin.display(description=gettext_lazy("verdict"))
def verdict(rejection: Any) -> str:
    """Why the write was refused."""
    return columns.badge(rejection.verdict, Verdict, tone="failed")


@admin.display(description=gettext_lazy("refused write"))
def action(rejection: Any) -> str:
    """Which write was refused."""
    return columns.badge(rejection.action, Action, tone="plain")


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
    return columns.NOTHING if rejection.late_by is None else spoken(rejection.late_by)


@admin.display(description=gettext_lazy("seen state"))
def seen_state(rejection: Any) -> str:
    """What the job's row said when the write was refused; nothing if it was gone."""
    return columns.badge(rejection.seen_state, State) if rejection.seen_state else columns.NOTHING


class ActionFilter(WordFilter):
    """By the refused write."""

    title = gettext_lazy("action")
    parameter_name = "action"
    endings = "endings"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return the writes that can be refused."""
        return [(self.endings, gettext_lazy("complete or fail")), *Action.choices]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the refusals of the chosen write."""
        if self.value() == self.endings:
            return queryset.endings()  # type: ignore[attr-defined, no-any-return]
        return super().queryset(request, queryset)


class VerdictFilter(WordFilter):
    """By verdict."""

    title = gettext_lazy("verdict")
    parameter_name = "verdict"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return the verdicts that refuse."""
        return [(verdict.value, verdict.label) for verdict in Verdict if verdict.is_rejection]


@admin.register(Rejection)
class RejectionAdmin(ReadOnlyAdmin):
    """Refused writes: who, which generation against which, and why."""

    list_display = [
        columns.number,
        columns.when,
        columns.job_link,
        action,
        verdict,
        against,
        late_by,
        seen_state,
        columns.worker,
    ]
    list_filter = [ActionFilter, VerdictFilter, JobFilter, BeforeFilter]
    search_fields = ["job_id"]
    search_help_text = gettext_lazy("A job's id, or the beginning of a worker's name.")
    fieldsets = [
        (
            None,
            {"fields": [columns.job_link, action, verdict, against, late_by]},
        ),
        (gettext_lazy("What the job's row said then"), {"fields": [seen_state, "seen_lease_until"]}),
        (gettext_lazy("Record"), {"fields": ["worker", "at"]}),
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

"""The jobs: a list that stays fast, and a page that shows what happened to one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..database import queue_database
from ..models import Job, Rejection
from ..querysets import count_of
from ..states import Action, State, as_id
from . import columns, deletion, job_actions, job_columns, job_page, json_text, operations
from .base import ReadOnlyAdmin
from .filters import BeforeFilter
from .job_filters import QueueFilter, StateFilter
from .timeline import LastItem

COUNTED_REJECTIONS = 1_000
RECENT = timedelta(hours=24)


def recent_refused_endings() -> dict[str, Any]:
    """Return how many refused endings the last day saw, and whether that is only a lower bound.

    Reads the newest COUNTED_REJECTIONS rows by primary key; there is no index on the time.
    """
    newest = Rejection.objects.using(queue_database()).order_by("-pk").annotate(clock=Now())
    rows = newest.values_list("action", "at", "clock")[:COUNTED_REJECTIONS]
    recent = [action for action, at, clock in rows if clock - at < RECENT]
    return {
        "count": sum(action in (Action.COMPLETE, Action.FAIL) for action in recent),
        "at_least": len(recent) == COUNTED_REJECTIONS,
    }


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    """Jobs. Only retry, cancel, run now and delete change anything, each with its own permission."""

    deletable = True
    large_columns = ("payload", "result", "worker_ids")
    list_display = [
        columns.number,
        job_columns.state,
        job_columns.task,
        "queue",
        job_columns.age,
        columns.generation,
        job_columns.attempts,
        job_columns.refused_endings,
        job_columns.lease,
        job_columns.last_worker,
    ]
    list_filter = [StateFilter, QueueFilter, BeforeFilter]
    search_fields = ["task"]
    search_help_text = gettext_lazy("A job's id, or a part of a task's name.")
    actions = [
        job_actions.retry_jobs,
        job_actions.run_jobs_now,
        job_actions.cancel_jobs,
        job_actions.delete_selected,
    ]
    fieldsets = [
        (
            None,
            {
                "fields": [
                    (columns.number, job_columns.state, job_columns.age),
                    "task",
                    ("queue", "priority"),
                    ("unique_key", "backend"),
                ]
            },
        ),
        (
            gettext_lazy("Lease"),
            {
                "fields": [
                    (columns.generation, job_columns.attempts, job_columns.lease),
                    job_columns.last_worker,
                ]
            },
        ),
        (
            gettext_lazy("Times"),
            {
                "classes": ["collapse"],
                "fields": [
                    ("enqueued_at", "run_after"),
                    ("started_at", "last_attempted_at"),
                    ("lease_until", "cancel_requested_at", "finished_at"),
                ],
            },
        ),
    ]

    def redact(self, value: Any) -> Any:
        """Return the arguments or result as they may be shown and downloaded; override it to hide more.

        The value is parsed JSON. Values under names that look like secrets are hidden.
        """
        return json_text.without_secrets(value)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the jobs with their last worker."""
        with_worker: QuerySet[Any] = (
            super().get_queryset(request).annotate(last_worker=LastItem(F("worker_ids")))
        )
        return with_worker

    def listed(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the jobs with the number of their refused endings, by the index on rejection.job_id."""
        refused = count_of(Rejection.objects.endings().of_outer_job())
        with_count: QuerySet[Any] = queryset.annotate(refused_endings=refused)
        return with_count

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find one job by its id, or jobs by a part of their task's path."""
        job_id = as_id(search_term.strip())
        if job_id is not None:
            return queryset.filter(pk=job_id), False
        term = search_term.strip()
        return (queryset.filter(task__icontains=term) if term else queryset), False

    def is_bounded(self, chosen: Mapping[str, str], term: str) -> bool:
        """Whether an index bounds the work: for an id, the running jobs, and waiting ones that nothing else narrows."""
        state = chosen.get("state")
        if as_id(term.strip()) is not None or state in (State.RUNNING, StateFilter.expired):
            return True
        return not term and (state == State.READY or (state == State.SCHEDULED and "queue" not in chosen))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """Show the list under the number of recently refused endings."""
        extra = {
            "recent_refused_endings": recent_refused_endings,
            "refused_endings_url": columns.admin_url("rejection_changelist", action="endings"),
        }
        return super().changelist_view(request, {**extra, **(extra_context or {})})

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """Add arguments, result, timeline and the buttons to the page."""
        job = kwargs.get("obj")
        if job is not None:
            context.update(job_page.context(job, redact=self.redact))
            context["verbs"] = [
                {"label": verb.label, "name": verb.name, "url": columns.admin_url(f"job_{verb.name}", job.pk)}
                for verb in job_page.verbs(job)
                if job_actions.may(request, verb)
            ]
        return super().render_change_form(request, context, *args, **kwargs)

    def get_urls(self) -> list[URLPattern]:
        """Add the buttons' and the download's addresses."""
        views = [
            path(
                f"<int:job_id>/{verb.name}/",
                self.admin_site.admin_view(partial(job_actions.press, self, verb=verb)),
                name=f"django_pgqueue_job_{verb.name}",
            )
            for verb in operations.VERBS.values()
        ]
        views.append(
            path(
                "<int:job_id>/download/<str:column>/",
                self.admin_site.admin_view(self.download_view),
                name="django_pgqueue_job_download",
            )
        )
        return [*views, *super().get_urls()]

    def download_view(self, request: HttpRequest, job_id: int, column: str) -> HttpResponse:
        """Send all of the arguments or the result as a JSON file."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if column not in ("payload", "result") or not self.get_queryset(request).filter(pk=job_id).exists():
            raise Http404
        text = job_page.download(job_id, column, redact=self.redact)
        if text is None:
            raise Http404
        response = HttpResponse(text, content_type="application/json")
        response["Content-Disposition"] = f'attachment; filename="job-{job_id}-{column}.json"'
        response["X-Content-Type-Options"] = "nosniff"
        return response

    def has_retry_permission(self, request: HttpRequest) -> bool:
        """Whether the user may retry jobs."""
        return job_actions.may(request, operations.RETRY)

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Whether the user may cancel jobs."""
        return job_actions.may(request, operations.CANCEL)

    def has_run_now_permission(self, request: HttpRequest) -> bool:
        """Whether the user may run scheduled jobs now."""
        return job_actions.may(request, operations.RUN_NOW)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Return what goes with one job, counted and not listed, for Django's page that asks."""
        (job,) = objs
        return deletion.summary(job), {self.opts.verbose_name: 1}, set(), deletion.protectors(job)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete one job."""
        deletion.delete_one(obj)

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> Any:
        """Delete one job after asking; say so if its worker holds the row."""
        try:
            return super().delete_view(request, object_id, extra_context)
        except OperationalError as error:
            if not operations.is_locked(error):
                raise
            self.message_user(request, _("The job's row is in use; try again."), messages.WARNING)
            return HttpResponseRedirect(columns.admin_url("job_change", object_id))

"""The list's actions and the page's buttons: each asks its own permission and goes through the same transitions."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from . import columns, deletion, operations


@admin.action(permissions=["retry"], description=gettext_lazy("Retry selected jobs that have ended"))
def retry_jobs(job_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> None:
    """Make ended jobs ready again."""
    perform(request, operations.RETRY, _chosen(job_admin, request, queryset))


@admin.action(permissions=["run_now"], description=gettext_lazy("Run selected scheduled jobs now"))
def run_jobs_now(job_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> None:
    """Make scheduled jobs ready at once."""
    perform(request, operations.RUN_NOW, _chosen(job_admin, request, queryset))


@admin.action(permissions=["cancel"], description=gettext_lazy("Cancel selected jobs"))
def cancel_jobs(job_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> None:
    """Cancel waiting jobs, and ask running ones to stop."""
    perform(request, operations.CANCEL, _chosen(job_admin, request, queryset))


@admin.action(permissions=["delete"], description=gettext_lazy("Delete selected jobs"))
def delete_selected(job_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
    """Ask once, then delete in batches. Takes the place of Django's action, which lists every row."""
    ids = _chosen(job_admin, request, queryset)
    if not request.POST.get("post"):
        return _confirm_deletion(job_admin, request, ids)
    result = deletion.delete(ids, before=partial(job_admin.log_deletions, request))
    for line, good in deletion.outcome_lines(result):
        messages.add_message(request, messages.SUCCESS if good else messages.WARNING, line)
    return None


def may(request: HttpRequest, verb: operations.Verb) -> bool:
    """Whether the user has the permission for `verb`."""
    return bool(request.user.has_perm(f"django_pgqueue.{verb.name}_job"))


def perform(request: HttpRequest, verb: operations.Verb, job_ids: list[int]) -> None:
    """Do `verb` to the jobs, log who did it, and tell how many were changed and refused."""
    tally = operations.apply(verb, job_ids)
    operations.log(request, verb, tally.changed)
    operations.report(request, verb, tally)


def press(job_admin: Any, request: HttpRequest, job_id: int, *, verb: operations.Verb) -> HttpResponse:
    """Do `verb` to one job, for the button on its page; by POST only."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    if not (job_admin.has_view_permission(request) and may(request, verb)):
        raise PermissionDenied
    perform(
        request, verb, list(job_admin.get_queryset(request).filter(pk=job_id).values_list("pk", flat=True))
    )
    return HttpResponseRedirect(columns.admin_url("job_change", job_id))


def _chosen(job_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> list[int]:
    return operations.chosen_ids(request, job_admin.get_queryset(request), queryset)


def _confirm_deletion(job_admin: Any, request: HttpRequest, ids: list[int]) -> HttpResponse:
    across = request.POST.get("select_across") == "1"
    running = deletion.running_among(ids)
    context = {
        **job_admin.admin_site.each_context(request),
        "title": _("Delete jobs"),
        "count": len(ids),
        "running_note": deletion.running_note(running) if running else "",
        "select_across": "1" if across else "0",
        # The whole list is named by the address's filters; only ticked rows are named one by one.
        "ticked": [str(job_id) for job_id in (ids[:1] if across else ids)],
        "action_checkbox_name": ACTION_CHECKBOX_NAME,
        "opts": job_admin.opts,
        "media": job_admin.media,
    }
    return TemplateResponse(request, "admin/django_pgqueue/job/delete_jobs.html", context)

"""Worker processes, as they last reported themselves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from .. import conf
from ..models import Worker
from . import columns
from .base import ReadOnlyAdmin
from .durations import spoken


def quiet_time() -> timedelta:
    """Return how long a worker may go unseen before it is shown as stale: the longest lease in TASKS."""
    leases = [conf.Options().lease]
    for alias in conf.backend_aliases():
        try:
            leases.append(conf.read_options(alias, conf.raw_options(alias)).lease)
        except ImproperlyConfigured:
            continue  # a system check reports it; this page must open nevertheless
    return max(leases)


@admin.display(description=gettext_lazy("status"))
def status(worker: Any) -> str:
    """Alive or stale, by when it was last seen; it says nothing about who owns a job."""
    if worker.clock - worker.seen_at > quiet_time():
        tone, word = "failed", _("stale")
    elif worker.draining:
        tone, word = "scheduled", _("draining")
    else:
        tone, word = "done", _("alive")
    return format_html('<span class="pgqueue-badge pgqueue-{}">{}</span>', tone, word)


@admin.display(description=gettext_lazy("seen"))
def seen(worker: Any) -> str:
    """How long ago the worker last wrote its row."""
    return format_html(
        '<time datetime="{}">{}</time>',
        worker.seen_at.isoformat(),
        _("%(age)s ago") % {"age": spoken(worker.clock - worker.seen_at)},
    )


@admin.display(description=gettext_lazy("up"))
def uptime(worker: Any) -> str:
    """How long the process had run when it was last seen."""
    return spoken(worker.seen_at - worker.started_at)


@admin.display(description=gettext_lazy("queues"))
def queues(worker: Any) -> str:
    """The queues the worker serves."""
    return columns.cut(", ".join(map(str, worker.queues or [])), 200) or _("every queue")


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    """Worker processes. Nothing about ownership or recovery depends on these rows."""

    ordering = ("-seen_at", "-pk")
    list_display = ["id", status, seen, "host", "pid_digits", queues, "running_of", uptime]
    search_fields = ["id"]
    search_help_text = gettext_lazy("A part of the worker's id or host.")
    fieldsets = [
        (
            None,
            {"fields": ["id", status, seen, uptime, "host", "pid_digits", queues, "running_of", "draining"]},
        ),
        (gettext_lazy("Times"), {"fields": ["started_at", "seen_at"]}),
    ]

    @admin.display(description=gettext_lazy("pid"))
    def pid_digits(self, worker: Worker) -> str:
        """The process id as digits only."""
        return str(worker.pid)

    @admin.display(description=gettext_lazy("running jobs"))
    def running_of(self, worker: Worker) -> str:
        """Busy slots of all slots."""
        return _("%(running)s of %(concurrency)s") % {
            "running": worker.running,
            "concurrency": worker.concurrency,
        }

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find workers by a part of their id or host."""
        term = search_term.strip()
        if term:
            queryset = queryset.filter(Q(pk__icontains=term) | Q(host__icontains=term))
        return queryset, False

"""What the lists and pages say about a job.

A job comes with `clock`, the database's time of the query, and `last_worker`; in lists with `refused_endings`.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..states import State
from .columns import NOTHING, admin_url, badge, timed, worker_name
from .durations import spoken


@admin.display(description=gettext_lazy("task"))
def task(job: Any) -> str:
    """The function's name over its module's path, which may wrap after a dot."""
    *modules, name = job.task.split(".")
    shown = format_html('<span title="{}">{}</span>', job.task, name)
    if not modules:
        return shown
    rest = format_html_join("", ".<wbr>{}", ((part,) for part in modules[1:]))
    return format_html('{} <span class="pgqueue-path">{}{}</span>', shown, modules[0], rest)


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
    return timed(since, phrase % {"age": spoken(job.clock - since)})


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
    return format_html(
        '<span class="pgqueue-late">{}</span>', _("expired %(time)s ago") % {"time": spoken(left)}
    )


@admin.display(description=gettext_lazy("worker"))
def last_worker(job: Any) -> str:
    """The worker of the newest generation."""
    return worker_name(job.last_worker)


@admin.display(description=gettext_lazy("rejected completions"))
def refused_endings(job: Any) -> str:
    """How many attempts to complete or fail the job were refused, with a link to them."""
    if not job.refused_endings:
        return "0"
    url = admin_url("rejection_changelist", job=job.pk, action="endings")
    return format_html('<a class="pgqueue-count" href="{}">{}</a>', url, str(job.refused_endings))

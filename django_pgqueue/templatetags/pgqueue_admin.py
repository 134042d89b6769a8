"""What the admin's index of this app shows beside the names of its tables."""

from __future__ import annotations

from typing import Any

from django import template
from django.http import HttpRequest
from django.urls import reverse

from ..admin.jobs import recent_refused_endings

register = template.Library()


@register.simple_tag
def refused_endings(request: HttpRequest) -> dict[str, Any] | None:
    """Return the count of the last day's rejected completions and its list's address; None if there are none.

    None also for somebody who may not see them.
    """
    if not request.user.has_perm("django_pgqueue.view_rejection"):
        return None
    recent = recent_refused_endings()
    return (
        {**recent, "url": reverse("admin:django_pgqueue_rejection_changelist")} if recent["count"] else None
    )

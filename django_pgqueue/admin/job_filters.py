"""Filters of the list of jobs."""

from __future__ import annotations

from typing import Any

from django.db import connections
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from .. import conf
from ..database import queue_database
from ..models import Job
from ..sql.claiming import READY_QUEUES
from ..states import State
from .filters import WordFilter

RECENT_JOBS = 1_000
MAX_QUEUES = 100


class StateFilter(WordFilter):
    """By state, with the running jobs whose lease has expired as a choice of their own."""

    title = _("state")
    parameter_name = "state"
    expired = "expired"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return the states."""
        return [*State.choices, (self.expired, _("running, lease expired"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the jobs in the chosen state."""
        if self.value() == self.expired:
            return queryset.expired()  # type: ignore[attr-defined, no-any-return]
        return super().queryset(request, queryset)


class QueueFilter(WordFilter):
    """By queue: the names in TASKS, of ready jobs (one index probe per name) and of the newest jobs.

    DISTINCT over the table would read it whole; a queue that none of these knows can be typed into the address.
    """

    title = _("queue")
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the names, at most MAX_QUEUES."""
        chosen: set[Any] = {self.value()} if self.value() else set()
        names = sorted(self._configured() | self._ready() | self._recent())[:MAX_QUEUES]
        return [(name, name) for name in sorted({*names, *chosen})]

    def _configured(self) -> set[str]:
        return {name for alias in conf.backend_aliases() for name in conf.queues_of(alias)}

    def _ready(self) -> set[str]:
        with connections[queue_database()].cursor() as cursor:
            cursor.execute(f"{READY_QUEUES} LIMIT %s", [MAX_QUEUES])
            return {name for (name,) in cursor.fetchall()}

    def _recent(self) -> set[str]:
        newest = Job.objects.using(queue_database()).order_by("-pk")[:RECENT_JOBS]
        return set(newest.values_list("queue", flat=True))

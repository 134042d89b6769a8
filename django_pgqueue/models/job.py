"""One request to run a task."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from ..bounds import MAX_ATTEMPTS
from ..querysets import RUNNING_HAS_LEASE, JobQuerySet, Negated
from ..states import LIVE_STATES, MAX_QUEUE_NAME, MAX_TASK_PATH, MAX_UNIQUE_KEY, State
from .fields import TextArrayField

ATTEMPTS = MAX_ATTEMPTS.default
READABLE = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))


def empty_payload() -> dict[str, Any]:
    """Return the payload of a job without arguments."""
    return {"args": [], "kwargs": {}}


class Job(models.Model):
    """A row is one request to run a task; fixed-width columns first, every natural default in the database.

    `generation` only counts claims: it is the fencing number. `attempts` counts runs against `max_attempts`
    and can go down. Entry g of `worker_ids` is the worker of generation g.
    """

    id = models.BigAutoField(primary_key=True)
    generation = models.BigIntegerField(default=0, db_default=0, editable=False)
    enqueued_at = models.DateTimeField(db_default=Now(), editable=False)
    run_after = models.DateTimeField(db_default=Now())
    lease_until = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    last_attempted_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    attempts = models.IntegerField(default=0, db_default=0)
    max_attempts = models.IntegerField(
        default=ATTEMPTS, db_default=ATTEMPTS, help_text=_("All starts, the first included.")
    )
    priority = models.SmallIntegerField(
        default=0, db_default=0, help_text=_("From -100 to 100; higher runs first.")
    )
    state = models.CharField(max_length=10, choices=State, default=State.READY, db_default=State.READY)
    task = models.CharField(max_length=MAX_TASK_PATH, help_text=_("Dotted path of the task."))
    queue = models.CharField(max_length=MAX_QUEUE_NAME, default="default", db_default="default")
    backend = models.CharField(
        max_length=100, default="default", db_default="default", help_text=_("Alias in TASKS.")
    )
    unique_key = models.CharField(max_length=MAX_UNIQUE_KEY, null=True, blank=True)  # noqa: DJ001 - null means "no key"
    worker_ids = TextArrayField(default=list, db_default=Value("{}"), blank=True)
    payload = models.JSONField(
        default=empty_payload, db_default=Value({"args": [], "kwargs": {}}, models.JSONField())
    )
    result = models.JSONField(null=True, blank=True)

    objects = JobQuerySet.as_manager()

    class Meta:
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        indexes = [
            models.Index(
                "queue", Negated("priority"), "id", name="pgqueue_job_ready", condition=Q(state=State.READY)
            ),
            models.Index("run_after", "id", name="pgqueue_job_scheduled", condition=Q(state=State.SCHEDULED)),
            models.Index("id", name="pgqueue_job_running", condition=Q(state=State.RUNNING)),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["unique_key"],
                name="pgqueue_job_unique_key",
                condition=Q(unique_key__isnull=False, state__in=LIVE_STATES),
            ),
            models.CheckConstraint(name="pgqueue_job_state", condition=Q(state__in=State.values)),
            models.CheckConstraint(name="pgqueue_job_priority", condition=Q(priority__range=(-100, 100))),
            models.CheckConstraint(name="pgqueue_job_lease", condition=RUNNING_HAS_LEASE),
            models.CheckConstraint(
                name="pgqueue_job_counters",
                condition=Q(generation__gte=0, attempts__gte=0, max_attempts__gte=1),
            ),
            models.CheckConstraint(
                name="pgqueue_job_times",  # what Python cannot hold would stop whoever reads the row
                condition=Q(enqueued_at__range=READABLE, run_after__range=READABLE),
            ),
            models.CheckConstraint(
                name="pgqueue_job_attempts_left",
                condition=~Q(state__in=(State.SCHEDULED, State.READY)) | Q(attempts__lt=F("max_attempts")),
            ),
        ]
        permissions = [
            ("retry_job", "Can retry job"),
            ("cancel_job", "Can cancel job"),
            ("run_now_job", "Can run job now"),
        ]

    def __str__(self) -> str:
        return f"{self.task} #{self.pk}"

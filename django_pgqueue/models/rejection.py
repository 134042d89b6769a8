"""The ledger of refused writes."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from ..querysets import RejectionQuerySet
from ..states import Action, State, Verdict


class Rejection(models.Model):
    """One write that was refused because its writer no longer owned the job.

    `job_id` has no constraint: the record outlives a deleted job. `current_generation`, `seen_state` and
    `seen_lease_until` are what the row said when the write was refused (empty if it was gone); `late_by` is
    how long after the loss the write came, where the row still tells.
    """

    id = models.BigAutoField(primary_key=True)
    job_id = models.BigIntegerField(db_index=True)
    generation = models.BigIntegerField()
    current_generation = models.BigIntegerField(null=True, blank=True)
    at = models.DateTimeField(db_default=Now())
    seen_lease_until = models.DateTimeField(null=True, blank=True)
    late_by = models.DurationField(null=True, blank=True)
    action = models.CharField(max_length=20, choices=Action)
    verdict = models.CharField(max_length=20, choices=Verdict)
    seen_state = models.CharField(max_length=10, choices=State, blank=True)
    worker = models.TextField(blank=True)

    objects = RejectionQuerySet.as_manager()

    class Meta:
        verbose_name = _("rejection")
        verbose_name_plural = _("rejections")

    def __str__(self) -> str:
        return f"{self.action} of job {self.job_id} by generation {self.generation}: {self.verdict}"

"""The record of a failed attempt."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from ..states import Kind
from .job import Job


class Failure(models.Model):
    """One attempt that failed, and why."""

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="failures")
    generation = models.BigIntegerField()
    at = models.DateTimeField(db_default=Now())
    kind = models.CharField(max_length=20, choices=Kind)
    worker = models.TextField(blank=True)
    exception_class = models.TextField(blank=True)
    message = models.TextField(blank=True)
    traceback = models.TextField(blank=True)

    class Meta:
        verbose_name = _("failure")
        verbose_name_plural = _("failures")

    def __str__(self) -> str:
        return f"job {self.job_id}, generation {self.generation}: {self.kind}"

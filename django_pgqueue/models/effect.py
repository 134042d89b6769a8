"""The results of effects outside the database."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from ..states import MAX_EFFECT_KEY
from .job import Job


class Effect(models.Model):
    """What one effect of a job returned; saved under a fence, returned to every later attempt."""

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="effects")
    generation = models.BigIntegerField()
    at = models.DateTimeField(db_default=Now())
    key = models.CharField(max_length=MAX_EFFECT_KEY)
    result = models.JSONField(null=True, blank=True)

    class Meta:
        verbose_name = _("effect")
        verbose_name_plural = _("effects")
        constraints = [models.UniqueConstraint(fields=["job", "key"], name="pgqueue_effect_key")]

    def __str__(self) -> str:
        return f"{self.key} of job {self.job_id}"

"""The worker processes, for people to look at."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from .fields import TextArrayField


class Worker(models.Model):
    """One `runworker` process. Nothing about ownership or recovery depends on this table."""

    id = models.CharField(max_length=200, primary_key=True)
    host = models.TextField()
    pid = models.IntegerField()
    queues = TextArrayField(default=list, blank=True)
    concurrency = models.IntegerField()
    started_at = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now())
    running = models.IntegerField(default=0, db_default=0)
    draining = models.BooleanField(default=False, db_default=False)

    class Meta:
        verbose_name = _("worker")
        verbose_name_plural = _("workers")

    def __str__(self) -> str:
        return self.pk

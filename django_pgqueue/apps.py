"""The app's configuration."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class DjangoPgQueueConfig(AppConfig):
    """A PostgreSQL job queue with leases and fencing."""

    name = "django_pgqueue"
    label = "django_pgqueue"
    verbose_name = _("Job queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks and the counters; late, because they need apps that are loaded."""
        from . import (
            checks,  # noqa: F401
            metrics,
        )

        metrics.install()

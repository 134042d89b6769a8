"""The settings of the lab's worker processes: this app alone, on the disposable database.

The user's project is not loaded there, so that no scenario can run its code or touch its tables.
"""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any

from ..retry import Backoff

# {"database": a DATABASES entry, "options": {"lease": seconds, "listen": bool, "fencing": str}}
GIVEN: dict[str, Any] = json.loads(os.environ.get("PGQUEUE_LAB", "{}"))
_OPTIONS: dict[str, Any] = GIVEN.get("options", {})

SECRET_KEY = "only for the lab's own processes"
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": GIVEN.get("database", {"ENGINE": "django.db.backends.dummy"})}
INSTALLED_APPS = ["django_pgqueue", "django_pgqueue.lab"]
TASKS = {
    "default": {
        "BACKEND": "django_pgqueue.backend.PgQueueBackend",
        "QUEUES": [],
        "OPTIONS": {
            "LEASE": timedelta(seconds=_OPTIONS.get("lease", 2)),
            "POLL_INTERVAL": timedelta(milliseconds=100),
            "BACKOFF": Backoff(base=timedelta(milliseconds=100), cap=timedelta(seconds=1)),
            "FENCING": _OPTIONS.get("fencing", "token"),
            "LISTEN": _OPTIONS.get("listen", True),
        },
    }
}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {"django_pgqueue": {"handlers": ["stderr"], "level": "INFO"}},
}

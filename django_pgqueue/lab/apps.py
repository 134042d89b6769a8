"""The app that the lab's own worker processes have installed: they die with the lab."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress

from django.apps import AppConfig

PR_SET_PDEATHSIG = 1


class LabConfig(AppConfig):
    """Ends this process, even while it is stopped, when the lab that started it is gone (Linux)."""

    name = "django_pgqueue.lab"
    label = "pgqueue_lab"

    def ready(self) -> None:
        """Ask the kernel for SIGKILL at the parent's death."""
        if str(os.getppid()) != os.environ.get("PGQUEUE_LAB_PARENT"):
            return  # a worker's own child, which is the worker's to end
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

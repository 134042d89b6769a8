"""`--reload`: restart the worker when code changes, never cutting a running job."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from django.utils import autoreload

from ..worker.worker import Worker

# The exit code by which Django's reloader asks its parent to start the process again.
RESTART = 3


def run_with_reload(make_worker: Callable[[], Worker]) -> None:
    """Run workers under Django's autoreloader; a change drains the worker before the restart."""
    autoreload.run_with_reloader(_serve, make_worker)


def _serve(make_worker: Callable[[], Worker]) -> None:
    worker = make_worker()
    changed = threading.Event()

    def drain(**kwargs: Any) -> bool:
        changed.set()
        worker.stop()
        return True  # the change is taken care of: the reloader shall not exit at once

    autoreload.file_changed.connect(drain, weak=False)
    code = worker.run()
    os._exit(RESTART if changed.is_set() else code)

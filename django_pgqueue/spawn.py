"""The first step of a child process: it must not import models before Django is set up."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import django


def run_in_child(module: str, *args: Any) -> None:
    """Set Django up in a freshly spawned process and run `main(*args)` of the module."""
    django.setup()
    import_module(module).main(*args)  # late: the module imports models

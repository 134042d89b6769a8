"""What jobs tell the test, and the test tells jobs: files, which work whatever becomes of the database."""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

FILES = Path(os.environ.get("PROCESS_FILES", "/nonexistent"))


def note(what: str, *, job: int | None = None, **facts: Any) -> None:
    """Append one line; one write, so that notes of several processes do not mix."""
    line = json.dumps({"what": what, "job": job, "pid": os.getpid(), "at": time.monotonic(), **facts})
    with (FILES / "notes").open("a") as notes:
        notes.write(line + "\n")


def wait_for_gate(name: str, seconds: float = 60) -> None:
    """Return once the test has opened the gate."""
    deadline = time.monotonic() + seconds
    while not (FILES / f"gate-{name}").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody opened the gate {name}")
        threading.Event().wait(0.02)

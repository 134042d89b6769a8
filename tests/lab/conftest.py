"""Run the lab's command in a process of its own, on a server that the tests have anyway."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.runs import Run, lab_command


@pytest.fixture(scope="session")
def server_url() -> str:
    """Give the address of the server that the settings name."""
    return os.environ["DATABASE_URL"]


@pytest.fixture
def lab(tmp_path: Path, server_url: str) -> Callable[..., Run]:
    """Give a function that runs `manage.py pgqueue_lab FLAGS`."""

    def run(*flags: str, url: str = server_url) -> Run:
        path = tmp_path / "evidence.json"
        path.unlink(missing_ok=True)
        done = subprocess.run(
            lab_command(*flags, "--evidence", str(path)),
            env={**os.environ, "DATABASE_URL": url},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        return Run(done.returncode, done.stdout, json.loads(path.read_text()) if path.exists() else {})

    return run

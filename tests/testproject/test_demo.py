"""The demo ends with 0 only if everything it shows held, and it always takes its workers along."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from django_pgqueue.lab.waiting import until
from testproject import MANAGE

WITHIN_SECONDS = 60


def address_of(name: str) -> str:
    url = urlsplit(os.environ["DATABASE_URL"])
    return url._replace(path=f"{url.path.rpartition('/')[0]}/{name}").geturl()


@pytest.fixture
def scratch() -> Iterator[str]:
    """Return the address of an empty database of its own."""
    name = f"demo_{uuid4().hex[:12]}"
    with psycopg.connect(address_of("postgres"), autocommit=True) as session:
        session.execute(f"CREATE DATABASE {name}")
        yield address_of(name)
        session.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def manage(scratch: str, tmp_path: Path) -> Callable[..., subprocess.Popen]:
    """Return a function that starts a management command on the scratch database."""

    def start(*arguments: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, str(MANAGE), *arguments],
            env={**os.environ, "DATABASE_URL": scratch, "SHOP_FILES": str(tmp_path), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=heed_interrupts,
        )

    return start


def heed_interrupts() -> None:
    """As in a terminal: what a shell starts in its background ignores SIGINT, and so does all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def finish(process: subprocess.Popen) -> tuple[int, str]:
    with process:
        output, _ = process.communicate(timeout=WITHIN_SECONDS)
        return process.returncode, output


def has_no_sessions(url: str) -> bool:
    """Return whether nobody but this question is connected: no worker was left behind."""
    with psycopg.connect(url) as session:
        ours = "datname = current_database() AND pid <> pg_backend_pid()"
        return session.execute(f"SELECT count(*) FROM pg_stat_activity WHERE {ours}").fetchone() == (0,)


def assert_that_no_worker_is_left(url: str) -> None:
    until(lambda: has_no_sessions(url), "the workers' sessions have ended", within=timedelta(seconds=5))


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_demo_holds_also_when_it_is_run_again(times, scratch, manage):
    for _ in range(times):
        code, output = finish(manage("demo", "--orders", "4"))
        assert code == 0, output
        assert "is frozen in the middle of job" in output
        assert "refused: generation 1 may not end a job that is at generation 2" in output
        assert "held  every customer got exactly one mail" in output
        assert "held  the late completion of generation 1 was refused once, as superseded" in output
        assert "DID NOT HOLD" not in output
        assert "\x1b" not in output
        assert_that_no_worker_is_left(scratch)


@pytest.mark.slow
def test_the_demo_fails_and_says_what_when_refused_writes_are_not_kept(scratch, manage):
    assert finish(manage("migrate", "--verbosity=0")) == (0, "")
    with psycopg.connect(scratch) as session:
        session.execute(
            "CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN DELETE FROM django_pgqueue_rejection WHERE id = NEW.id; RETURN NULL; END'"
        )
        session.execute(
            "CREATE TRIGGER forget AFTER INSERT ON django_pgqueue_rejection "
            "FOR EACH ROW EXECUTE FUNCTION forget()"
        )
    code, output = finish(manage("demo", "--orders", "2"))
    assert code == 1
    assert "This did not hold: within 8 s: the late completion is refused and recorded" in output
    assert_that_no_worker_is_left(scratch)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_demo_takes_its_workers_along_when_it_is_ended_early(scratch, manage, signum, code):
    process = manage("demo", "--orders", "2")
    for line in process.stdout:
        if "SIGSTOP" in line:
            process.send_signal(signum)
            break
    assert finish(process)[0] == code
    assert_that_no_worker_is_left(scratch)

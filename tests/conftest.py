"""Fixtures that all tests share."""

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import connection, connections
from django.test import TransactionTestCase

from django_pgqueue.lab.processes import WorkerProcess
from django_pgqueue.lease import Lease
from testproject import MANAGE
from tests.databases import names_of_databases, number_of_its_own
from tests.processes.stage import Stage
from tests.races.tools import claim_one, new_job
from tests.tables import TABLES


def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes `-n auto` starts: tests mostly wait, so one more than there are cores."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(scope="session")
def django_db_modify_db_settings() -> Iterator[None]:
    """Give each process that runs tests databases of its own, whichever run it belongs to."""
    named = {alias: connections[alias].settings_dict["NAME"] for alias in connections}
    with number_of_its_own() as number:
        for alias, name in names_of_databases(named, number).items():
            connections[alias].settings_dict["TEST"]["NAME"] = name
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_clean_up() -> Iterator[None]:
    """Let tests commit, and delete what they left.

    Django truncates every table and makes permissions and content types anew, which takes a hundred times as
    long. Tables that no test fills (those two, and the migrations') are left alone.
    """

    def clean(test: TransactionTestCase) -> None:
        for alias in test._databases_names(include_mirrors=False):
            with connections[alias].cursor() as cursor:
                names = set(connections[alias].introspection.table_names(cursor))
                tables = [table for table in TABLES if table in names]
                cursor.execute("; ".join(f"DELETE FROM {table}" for table in tables))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", clean)
        yield


@pytest.fixture
def lease(transactional_db: None) -> Lease:
    """Give the lease of the first of three attempts, which worker A holds."""
    new_job(max_attempts=3)
    return claim_one("A")


@pytest.fixture
def database_url(transactional_db: None) -> str:
    """Return the address of the test database, for child processes."""
    url = urlsplit(os.environ["DATABASE_URL"])
    folder = url.path.rpartition("/")[0]
    return url._replace(path=f"{folder}/{connection.settings_dict['NAME']}").geturl()


@pytest.fixture
def worker_process(database_url: str, tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """Give a function that starts a real `runworker FLAGS` on the test database; all are killed at last."""
    numbers = count(1)
    with ExitStack() as children:

        def start(*flags: str, env: dict[str, str] | None = None) -> WorkerProcess:
            log = tmp_path / f"worker-{next(numbers)}.log"
            files = {"DATABASE_URL": database_url, "SHOP_FILES": str(tmp_path / "shop")}
            env = {**os.environ, **files, **(env or {})}
            return children.enter_context(WorkerProcess(*flags, log=log, env=env, manage=MANAGE))

        yield start


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    """Give a stage on the test database; its workers are killed and reaped at last."""
    stage = Stage(database_url, tmp_path / "stage")
    try:
        yield stage
    finally:
        stage.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape lone surrogates, which jobs here log on purpose: a report travels between processes as UTF-8."""
    report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report

"""Fixtures that all tests share."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import connection, connections
from django.test import TransactionTestCase

from django_pgqueue.lab.processes import WorkerProcess
from testproject import MANAGE
from tests.processes.stage import Stage
from tests.tables import TABLES

ADVISORY_LOCKS = 0x70677175  # "pgqu": the first of two numbers that name a lock


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None) -> Iterator[None]:
    """Give each of several test runs on one server databases of its own.

    The first run uses the plain name, the next one a numbered one. A lock says which numbers are taken; the
    server drops it with the session, also at kill -9.
    """
    params = {**connection.get_connection_params(), "dbname": "postgres"}
    with psycopg.connect(**params, autocommit=True) as session:
        number = next(number for number in count() if _takes(session, number))
        plain = f"test_{connection.settings_dict['NAME']}"
        for alias in connections:
            test = connections[alias].settings_dict["TEST"]
            name = test["NAME"] or f"test_{connections[alias].settings_dict['NAME']}"
            # A child makes the other database's name from the default one's: the number goes between.
            test["NAME"] = name.replace(plain, f"{plain}_{number}", 1) if number else name
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


def _takes(session: psycopg.Connection, number: int) -> bool:
    return session.execute("SELECT pg_try_advisory_lock(%s, %s)", [ADVISORY_LOCKS, number]).fetchone()[0]

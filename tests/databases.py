"""The databases of a process that runs tests: other runs, and this run's other processes, have others."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count

import psycopg
from django.db import connection

ADVISORY_LOCKS = 0x70677175  # "pgqu": the first of two numbers that name a lock


@contextmanager
def number_of_its_own() -> Iterator[int]:
    """Take the first number that no other process on this server has.

    A lock says which are taken; the server drops it with the session, also at kill -9.
    """
    params = {**connection.get_connection_params(), "dbname": "postgres"}
    with psycopg.connect(**params, autocommit=True) as session:
        yield next(number for number in count() if _takes(session, number))


def names_of_databases(named: Mapping[str, str], number: int) -> dict[str, str]:
    """Return the names for the tests, by alias, of databases that the settings have `named`.

    A child of a test makes the others' names from the default one's, as the settings do.
    """
    plain = named["default"]
    own = f"test_{plain}_{number}" if number else f"test_{plain}"
    return {alias: name.replace(plain, own, 1) for alias, name in named.items()}


def _takes(session: psycopg.Connection, number: int) -> bool:
    return session.execute("SELECT pg_try_advisory_lock(%s, %s)", [ADVISORY_LOCKS, number]).fetchone()[0]

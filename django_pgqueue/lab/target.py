"""Where a scenario happens: a database by its libpq parameters, and the disposable one the lab makes and drops."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections
from psycopg import sql

# The alias under which the lab's own process reaches the disposable database.
ALIAS = "pgqueue_lab"
PREFIX = "pgqueue_lab_"
APPLICATION = "pgqueue-lab"

_DJANGO_KEYS = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}


class NoServer(Exception):
    """There is no server, or no database on it, for the lab; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One database, as plain libpq parameters; children get it whatever made the connection (service files, pools)."""

    params: Mapping[str, str]

    @property
    def name(self) -> str:
        """Name of the database."""
        return self.params["dbname"]

    def but(self, **changes: str) -> Target:
        """Return the same with other parameters."""
        return Target(params={**self.params, **changes})

    def without(self, *names: str) -> Target:
        """Return the same without these parameters."""
        return Target(params={key: value for key, value in self.params.items() if key not in names})

    def connect(self, application: str = APPLICATION, **changes: Any) -> psycopg.Connection[Any]:
        """Open a session in autocommit mode, fit for a transaction pooler."""
        return psycopg.connect(
            **{"connect_timeout": "10", **self.params, "application_name": application, **changes},
            autocommit=True,
            prepare_threshold=None,
        )

    def settings(self) -> dict[str, Any]:
        """Return an entry of DATABASES."""
        options = {key: value for key, value in self.params.items() if key not in _DJANGO_KEYS}
        given = {name: self.params.get(key, "") for key, name in _DJANGO_KEYS.items()}
        return {"ENGINE": "django.db.backends.postgresql", **given, "OPTIONS": options}


def configured(using: str) -> Target:
    """Return the database of an alias, as its connection really came about."""
    connection = connections[using]
    connection.ensure_connection()
    info = connection.connection.info
    params = {key: value for key, value in info.get_parameters().items() if key not in _NOT_OURS}
    if info.password:
        params["password"] = info.password
    return Target(params={**params, "host": info.host, "port": str(info.port), "dbname": info.dbname})


# What the lab sets by itself, or what belongs to one session.
_NOT_OURS = frozenset(
    {"application_name", "fallback_application_name", "client_encoding", "options", "connect_timeout"}
)


@contextmanager
def disposable(server: Target) -> Iterator[Target]:
    """Make a database of a random name beside `server`'s, and drop it whatever happens.

    The session that makes it is in the configured database, which a pooler surely knows; nothing is read or
    written there.
    """
    target = server.but(dbname=f"{PREFIX}{secrets.token_hex(4)}")
    name = sql.Identifier(target.name)
    try:
        with server.connect() as session:
            session.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'").format(name))
    except psycopg.errors.InsufficientPrivilege:
        role = server.params.get("user", "the role")
        raise NoServer(f"{role} may not create a database; ALTER ROLE {role} CREATEDB allows it") from None
    except psycopg.Error as error:
        raise NoServer(f"no database could be made: {error}") from None
    try:
        yield target
    finally:
        with server.connect() as session:
            session.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))


@contextmanager
def reachable(target: Target) -> Iterator[None]:
    """Let Django reach the database under ALIAS while the block runs."""
    entry = connections.configure_settings({DEFAULT_DB_ALIAS: target.settings()})[DEFAULT_DB_ALIAS]
    entry["DISABLE_SERVER_SIDE_CURSORS"] = True
    entry["OPTIONS"]["application_name"] = APPLICATION
    connections.settings[ALIAS] = entry
    try:
        yield
    finally:
        connections[ALIAS].close()
        del connections[ALIAS]
        del connections.settings[ALIAS]


def is_pooled(target: Target) -> bool:
    """Whether a pooler answers in the server's place: it makes up the pid that it tells its clients."""
    with target.connect() as session:
        return bool(session.info.backend_pid != _pid(session))


def _pid(session: psycopg.Connection[Any]) -> int:
    row = session.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])

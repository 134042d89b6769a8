"""The server that everything is measured on, and its databases."""

import os
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from testproject import embedded

WORK = Path(__file__).resolve().parent / ".work"
# Commits stay durable. One checkpoint less in a drain is one cause of noise less; what it does not measure are the
# full-page images that follow each checkpoint, which are alike for everybody who updates the same rows.
SETTINGS = {
    "shared_buffers": "1GB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "none",
    "compute_query_id": "off",
}


def server_url() -> str:
    """Return the address of a database on the server, which is started if it is the embedded one."""
    given = os.environ.get("DATABASE_URL", "")
    if given:
        return given
    folder = WORK / "server"
    WORK.mkdir(exist_ok=True)
    url = embedded.database_url(folder)
    if _configure(url):
        server = embedded.server_in(folder)
        server.stop()
        server.start()
    return url


def connect(url: str) -> psycopg.Connection:
    """Return a session for looking and preparing, each of whose statements commits on its own."""
    return psycopg.connect(url, autocommit=True, application_name="benchmarks")


def database(server: str, name: str, *, template: str = "template1") -> str:
    """Make the database anew, as a copy of `template`, and return its address."""
    with connect(server) as session:
        session.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
        session.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
        )
    return urlsplit(server)._replace(path=f"/{name}").geturl()


def count_statements(url: str) -> bool:
    """Let pg_stat_statements count in this database; False where the server has none."""
    with connect(url) as session:
        if "pg_stat_statements" not in session.execute("SHOW shared_preload_libraries").fetchone()[0]:
            return False
        name = sql.Identifier(session.info.dbname)
        session.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        session.execute(sql.SQL("ALTER DATABASE {} SET pg_stat_statements.track = 'top'").format(name))
        session.execute(sql.SQL("ALTER DATABASE {} SET compute_query_id = 'on'").format(name))
    return True


def _configure(url: str) -> bool:
    """Write the settings; return whether that needs a restart."""
    with connect(url) as session:
        session.execute("CHECKPOINT")
        if session.execute("SHOW max_wal_size").fetchone()[0] == SETTINGS["max_wal_size"]:
            return False
        for name, value in SETTINGS.items():
            session.execute(
                sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(*name.split(".")), value)
            )
    return True

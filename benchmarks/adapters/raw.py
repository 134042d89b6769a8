"""The floors: plain statements on this project's own table, without Django."""

import json
import os

import psycopg

from . import TEXT
from .pgqueue import CHECK, LEFT, MARK, TABLES  # noqa: F401

TASK = "benchmarks.tasks.noop"
PAYLOAD = json.dumps({"args": [TEXT], "kwargs": {}})
WORKERS = {
    "one": ["-m", "benchmarks.raw", "1"],
    "batches": ["-m", "benchmarks.raw", "50"],
}
_session: list[psycopg.Connection] = []


def fill(count, kind):
    """COPY."""
    with (
        psycopg.connect(os.environ["DATABASE_URL"]) as session,
        session.cursor().copy("COPY django_pgqueue_job (task, payload) FROM STDIN") as copy,
    ):
        for _ in range(count):
            copy.write_row((TASK, PAYLOAD))


def enqueue(text):
    """INSERT and COMMIT."""
    if not _session:
        _session.append(psycopg.connect(os.environ["DATABASE_URL"], autocommit=True))
    payload = json.dumps({"args": [text], "kwargs": {}})
    _session[0].execute(
        "INSERT INTO django_pgqueue_job (task, payload) VALUES (%s, %s) RETURNING id", (TASK, payload)
    ).fetchone()

"""procrastinate, without Django: its connector for psycopg, coroutines as tasks."""

import os

import procrastinate

from benchmarks.stamps import note

from . import TEXT

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ["DATABASE_URL"]))

TABLES = ["procrastinate_jobs", "procrastinate_events"]
LEFT = "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))"
CHECK = """
    SELECT (SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'),
           (SELECT count(*) FROM procrastinate_jobs),
           (SELECT max(at) FROM procrastinate_events WHERE type = 'succeeded')
"""
_WORKER = ["-m", "procrastinate", "--app", "benchmarks.adapters.procrastinate.app", "worker"]
WORKERS = {"defaults": _WORKER, "best": [*_WORKER, "--concurrency", "20"]}


@app.task
async def noop(text):
    """Do nothing."""


@app.task
async def stamped(sent):
    """Note how long ago the job was sent."""
    note(sent)


def setup():
    """Make the tables."""
    with app.open():
        app.schema_manager.apply_schema()


def fill(count, kind):
    """Defer through the API for many."""
    with app.open():
        noop.batch_defer(*({"text": TEXT} for _ in range(count)))


_opened = []


def _open():
    if not _opened:
        _opened.append(app.open().__enter__())


def enqueue(text):
    """Defer one."""
    _open()
    noop.defer(text=text)


def stamp(sent):
    """Defer one that says when it runs."""
    _open()
    stamped.defer(sent=sent)

"""pgqueuer on asyncpg, the driver of its README; it has no Django in it, and its jobs are bytes.

As a program it works with a batch of the size given, else of its default: its own command fails with today's typer.
"""

import asyncio
import os
import sys

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from benchmarks.stamps import note

from . import TEXT

TABLES = ["pgqueuer", "pgqueuer_log"]
LEFT = "SELECT EXISTS (SELECT FROM pgqueuer)"
CHECK = """
    SELECT count(*) FILTER (WHERE status = 'successful'), count(DISTINCT job_id),
           max(created) FILTER (WHERE status = 'successful')
    FROM pgqueuer_log
"""
_WORKER = ["-m", "benchmarks.adapters.pgqueuer"]
WORKERS = {"defaults": _WORKER, "best": [*_WORKER, "250"]}
_runner = asyncio.Runner()


async def work(**options):
    """Be a worker."""
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(os.environ["DATABASE_URL"])))

    @queue.entrypoint("noop")
    async def noop(job):
        pass

    @queue.entrypoint("stamp")
    async def stamp(job):
        note(float(job.payload))

    await queue.run(**options)


def _queries():
    if not hasattr(_queries, "made"):
        session = _runner.run(asyncpg.connect(os.environ["DATABASE_URL"]))
        _queries.made = Queries(AsyncpgDriver(session))
    return _queries.made


def setup():
    """Make the tables."""
    _runner.run(_queries().install())


def fill(count, kind):
    """Enqueue through the API for many."""
    for begin in range(0, count, 5000):
        many = min(5000, count - begin)
        _runner.run(_queries().enqueue(["noop"] * many, [TEXT.encode()] * many, [0] * many))


def enqueue(text):
    """Enqueue one."""
    _runner.run(_queries().enqueue("noop", text.encode()))


def stamp(sent):
    """Enqueue one that says when it runs."""
    _runner.run(_queries().enqueue("stamp", str(sent).encode()))


if __name__ == "__main__":
    _runner.run(work(**({"batch_size": int(sys.argv[1])} if len(sys.argv) > 1 else {})))

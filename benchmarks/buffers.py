"""Buffers that the main statements touch in a large table; they repeat where seconds do not.
from django_pgqueue import outcomes

As a program (`python -m benchmarks.buffers WHAT`) it runs on the database of DATABASE_URL and prints JSON. The
statements are those that the package sends: caught on their way, undone, and sent again under EXPLAIN.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from .bench import Bench
from .project import ROOT
from .rows import insert

QUEUE = "default"
WORKER = "buffers-0123456789"


def buffers(bench: Bench) -> None:
    """All states at once: finished, ready, scheduled and running jobs."""
    if "buffers of" in bench.results.notes:
        return  # they do not change from round to round
    many = bench.sizes.history
    running = many // 50
    url = bench.copy("big")
    insert(url, {"done": many, "ready": many + running, "scheduled": many})
    _child(url, "run", str(running))
    insert(url, {})
    note(bench, url, "in_large_table")
    bench.results.notes["buffers of"] = f"{many:,} done, ready and scheduled each, {running:,} running"


def note(bench: Bench, url: str, what: str) -> None:
    """Keep what the child process finds."""
    found = bench.results.notes.setdefault("buffers", {})
    found.update(_child(url, what))
    print("  buffers:", found, flush=True)


def _child(url: str, *arguments: str) -> Any:
    settings = {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "benchmarks.adapters.pgqueue"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.buffers", *arguments],
        cwd=ROOT,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def explained(work: Callable[[], object]) -> int:
    """Return how many buffers the one UPDATE of `work` touches; nothing of it stays."""
    from django.db import connection, transaction

    sent: list[tuple[str, Any]] = []

    def catch(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        sent.append((sql, params))
        return execute(sql, params, many, context)

    with transaction.atomic(), connection.execute_wrapper(catch):
        work()
        transaction.set_rollback(True)
    ((sql, params),) = [item for item in sent if "UPDATE django_pgqueue_job" in item[0]]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", params)
        found = cursor.fetchone()[0]
        transaction.set_rollback(True)
    plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def run(count: str) -> None:
    """Claim so many jobs, in batches as workers do, so that they lie where claims put them."""
    from django_pgqueue.leases import claim

    for number in range(int(count) // 100):
        claim(worker=f"worker-{number % 20}", queues=[QUEUE], limit=100, lease=timedelta(days=1))


def in_large_table() -> dict[str, int]:
    """Return the buffers of each main statement."""
    from django_pgqueue import outcomes
    from django_pgqueue.leases import claim, push, reclaim
    from django_pgqueue.upkeep import promote

    held = claim(worker=WORKER, queues=[QUEUE], limit=50, lease=timedelta(days=1))
    endings = [outcomes.Ending.done(lease) for lease in held]
    return {
        "claim 1": explained(lambda: claim(worker=WORKER, queues=[QUEUE], limit=1)),
        "claim 50": explained(lambda: claim(worker=WORKER, queues=[QUEUE], limit=50)),
        "complete 50": explained(lambda: outcomes.end(endings, using="default")),
        "renew 50": explained(lambda: push(held, using="default")),
        "idle promotion": explained(promote),
        "reclaim probe": explained(lambda: reclaim(worker=WORKER, queues=[QUEUE], limit=50)),
    }


def under_snapshot() -> dict[str, int]:
    """Return the buffers of a claim with the position hint, and without, after many jobs have passed."""
    from django.db.models import Max

    from django_pgqueue.leases import claim
    from django_pgqueue.models import Job
    from django_pgqueue.states import FINISHED_STATES

    last = Job.objects.filter(state__in=FINISHED_STATES).aggregate(last=Max("pk"))["last"]
    hint = {QUEUE: (0, last)}
    return {
        "claim 1 after 100k jobs under a snapshot": explained(
            lambda: claim(worker=WORKER, queues=[QUEUE], limit=1, after=hint)
        ),
        "the same without the position hint": explained(
            lambda: claim(worker=WORKER, queues=[QUEUE], limit=1)
        ),
    }


if __name__ == "__main__":
    import django

    django.setup()
    commands = {"run": run, "in_large_table": in_large_table, "under_snapshot": under_snapshot}
    print(json.dumps(commands[sys.argv[1]](*sys.argv[2:])))

"""Drains beside a long history, beside many scheduled jobs, and under somebody's old snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from . import buffers
from .bench import Bench
from .drain import drain


def history(bench: Bench) -> None:
    """The drain at defaults, in a table that holds many other rows; `drain/1 worker, defaults` is the same without."""
    for name, project in bench.with_history.items():
        drained = drain(project, project.configurations["defaults"], bench.sizes.jobs, keep=True)
        bench.results.add_drain(f"history/{name}", drained)


def snapshot(bench: Bench) -> None:
    """A drain while somebody holds a snapshot from before it, and the same drain without."""
    queue, jobs = bench.main, bench.sizes.snapshot_jobs
    worker = queue.configurations["defaults"]
    bench.results.add_drain("snapshot/none", drain(queue, worker, jobs))

    @contextmanager
    def held() -> Iterator[None]:
        with psycopg.connect(queue.url) as holder:
            holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            holder.execute("SELECT count(*) FROM pg_class")
            yield
            queue.call("fill", 100, "noop")
            buffers.note(bench, queue.url, "under_snapshot")

    bench.results.add_drain("snapshot/held", drain(queue, worker, jobs, around=held))

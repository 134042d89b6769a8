"""Pick-up latency: from the call of enqueue() to the first line of the job, on an idle worker."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from statistics import quantiles

from .bars import POLL_SECONDS
from .bench import Bench
from .drain import until_empty
from .project import STAMPS, Project
from .server import connect

START_SECONDS = 4.0
WARM_UP = 3


def latencies(
    project: Project, arguments: Sequence[str], count: int, *, shortest: float, longest: float
) -> list[float]:
    """Return the milliseconds of each of `count` pick-ups, sent at random moments; the first few do not count."""
    with connect(project.url) as session:
        session.execute(f"TRUNCATE {', '.join(project.tables)} RESTART IDENTITY CASCADE")
        STAMPS.write_text("")
        with project.working(arguments) as workers:
            threading.Event().wait(START_SECONDS)
            project.call("pickup", count + WARM_UP, shortest, longest)
            until_empty(session, project, workers)
    return [float(line) * 1000 for line in STAMPS.read_text().split()][WARM_UP:]


def add(bench: Bench, name: str, found: list[float]) -> None:
    """Take note of the percentiles of one round."""
    cuts = quantiles(found, n=100, method="inclusive")
    for percent in (50, 95, 99):
        bench.results.add(f"{name}, p{percent}", cuts[percent - 1], "ms")


def pickup(bench: Bench) -> None:
    """With LISTEN, and with polling only; far enough apart for the worker to fall idle in between."""
    queue, sizes = bench.main, bench.sizes
    found = latencies(queue, queue.configurations["defaults"], sizes.pickups, shortest=0.5, longest=1.3)
    add(bench, "pickup/LISTEN", found)
    found = latencies(queue, queue.configurations["polling"], sizes.polls, shortest=2.1, longest=3.5)
    add(bench, "pickup/polling", found)
    middle = bench.results.samples["pickup/polling, p50"][-1]
    bench.results.add("pickup/polling, p50 of the interval", middle / 1000 / POLL_SECONDS, "×")

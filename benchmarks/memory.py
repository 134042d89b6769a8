"""Memory of a worker: idle, above a bare django.setup(), and after many jobs."""

from __future__ import annotations

import subprocess
import threading

from .bench import Bench
from .drain import until_empty
from .project import ROOT
from .server import connect

REST_SECONDS = 4.0
BARE = "import django, sys; django.setup(); print('up', flush=True); sys.stdin.read()"


def memory(bench: Bench) -> None:
    """Resident memory (RSS) and its proportional share (PSS), of a worker at defaults."""
    queue, results = bench.main, bench.results
    bare = subprocess.Popen(
        [queue.python, "-c", BARE],
        cwd=ROOT,
        env=queue.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with bare, connect(queue.url) as session:
        assert bare.stdout is not None
        bare.stdout.readline()
        session.execute(f"TRUNCATE {', '.join(queue.tables)} RESTART IDENTITY CASCADE")
        with queue.working(queue.configurations["defaults"]) as (worker,):
            threading.Event().wait(REST_SECONDS)
            below, idle = measured(bare.pid), measured(worker.pid)
            queue.call("fill", bench.sizes.memory_jobs, "noop")
            until_empty(session, queue, [worker])
            threading.Event().wait(REST_SECONDS)
            after = measured(worker.pid)
        bare.stdin.close()  # type: ignore[union-attr]
    for kind in ("RSS", "PSS"):
        results.add(f"memory/bare django.setup(), {kind}", below[kind], "MB")
        results.add(f"memory/idle above bare, {kind}", idle[kind] - below[kind], "MB")
        results.add(f"memory/growth, {kind}", after[kind] - idle[kind], "MB")


def measured(pid: int) -> dict[str, float]:
    """Return the RSS and the PSS of a process in MB."""
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        lines = [line.split() for line in rollup]
    return {line[0].rstrip(":").upper(): int(line[1]) / 1024 for line in lines if line[0] in ("Rss:", "Pss:")}

"""The measures of every round, by name: floors, enqueueing, drains, and what a job costs."""

from __future__ import annotations

from .bars import B1, B2, DEFAULTS, TUNED, TUNED2
from .bench import Bench
from .drain import Drained, drain


def floors(bench: Bench) -> None:
    """What PostgreSQL itself can do through psycopg."""
    raw, jobs, results = bench.raw, bench.sizes.single_jobs, bench.results
    one = raw.configurations["one"]
    results.add_drain("floor/a: 1 and 1, 1 connection", drain(raw, one, jobs))
    results.add_drain("floor/a: 1 and 1, 4 connections", drain(raw, one, jobs, workers=4))


def drains(bench: Bench) -> None:
    """No-op jobs, by one worker and two, by every pool; floor (b) before and after what is compared with it."""
    queue, jobs, results = bench.main, bench.sizes.jobs, bench.results
    worker = queue.configurations

    def floor(connections: int) -> Drained:
        return drain(bench.raw, bench.raw.configurations["batches"], jobs, workers=connections)

    before = floor(1)
    defaults = drain(queue, worker["defaults"], jobs)
    between = floor(1)
    tuned = drain(queue, worker["tuned"], jobs)
    results.add_drain(B1, before, between, floor(1))
    results.add_drain(DEFAULTS, defaults)
    results.add_drain(TUNED, tuned)
    before = floor(2)
    tuned = drain(queue, worker["tuned"], jobs, workers=2)
    results.add_drain(B2, before, floor(2))
    results.add_drain(TUNED2, tuned)
    results.add_drain("drain/1 worker, processes", drain(queue, worker["processes"], jobs))
    results.add_drain("drain/1 worker, async", drain(queue, worker["defaults"], jobs, kind="anoop"))


def enqueueing(bench: Bench) -> None:
    """One by one, each committed, and many at once; beside raw INSERT and COPY."""
    sizes, results = bench.sizes, bench.results
    for name, project in (("floor/c: INSERT and COMMIT", bench.raw), ("enqueue/one by one", bench.main)):
        results.add(name, sizes.enqueued / project.call("one", sizes.enqueued)["seconds"], "jobs/s")
    for name, project in (("floor/c: COPY", bench.raw), ("enqueue/enqueue_many", bench.main)):
        results.add(name, sizes.jobs / project.call("fill", sizes.jobs, "noop")["seconds"], "jobs/s")


def cost(bench: Bench) -> None:
    """WAL and statements per job, where pg_stat_statements counts them."""
    queue, raw, counts = bench.counted
    jobs = bench.sizes.jobs
    raw_drain = drain(raw, raw.configurations["batches"], jobs, counted=counts)
    bench.results.add_drain("cost/raw", raw_drain)
    queue_drain = drain(queue, queue.configurations["defaults"], jobs, counted=counts)
    bench.results.add_drain("cost/defaults", queue_drain)

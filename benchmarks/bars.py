"""The bars: what must be reached, as a ratio of two measures of the same run or as a plain number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from .results import Results

POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """`name` divided by `base` (or alone) must be at least, or `at_most`, `limit`."""

    title: str
    name: str
    limit: float
    base: str | None = None
    at_most: bool = False
    unit: str = "×"

    def values(self, results: Results) -> Sequence[float]:
        """Return what was measured, one value per round."""
        if self.base is None:
            return results.samples.get(self.name, [])
        return results.ratio(self.name, self.base)

    def is_met(self, values: Sequence[float]) -> bool:
        """Whether the median of the rounds keeps to the limit."""
        middle = median(values)
        return middle <= self.limit if self.at_most else middle >= self.limit


def _ratio(title: str, name: str, base: str, limit: float) -> Bar:
    return Bar(title=title, name=name, base=base, limit=limit)


def _most(title: str, name: str, limit: float, unit: str, base: str | None = None) -> Bar:
    return Bar(title=title, name=name, limit=limit, unit=unit, at_most=True, base=base)


B1, B2 = "floor/b: 50 and 50, 1 connection", "floor/b: 50 and 50, 2 connections"
DEFAULTS, TUNED, TUNED2 = "drain/1 worker, defaults", "drain/1 worker, tuned", "drain/2 workers, tuned"

BARS = [
    _ratio("drain, 1 worker, defaults, of floor (b) on 1 connection", DEFAULTS, B1, 0.5),
    _ratio("drain, 1 worker tuned, of floor (b) on 1 connection", TUNED, B1, 0.8),
    _ratio("drain, 2 workers tuned, of floor (b) on 2 connections", TUNED2, B2, 0.6),
    _ratio("drain at defaults, of django-tasks-db", DEFAULTS, "against/django-tasks-db, defaults", 25),
    _ratio("drain at defaults, of pgqueuer at its defaults", DEFAULTS, "against/pgqueuer, defaults", 2.5),
    _ratio("drain tuned, of pgqueuer at its best", TUNED, "against/pgqueuer, best", 1),
    _ratio("2 workers tuned, of 2 pgqueuers at their best", TUNED2, "against/pgqueuer, best, 2 workers", 1),
    _ratio("drain beside finished jobs, of an empty table", "history/finished jobs", DEFAULTS, 0.85),
    _ratio("drain beside scheduled jobs, of an empty table", "history/scheduled jobs", DEFAULTS, 0.85),
    _ratio("drain under a held snapshot, of one without", "snapshot/held", "snapshot/none", 0.6),
    _ratio("enqueue one by one, of INSERT + COMMIT", "enqueue/one by one", "floor/c: INSERT and COMMIT", 0.5),
    _ratio("enqueue_many, of COPY", "enqueue/enqueue_many", "floor/c: COPY", 0.4),
    _most("pick-up with LISTEN, p50", "pickup/LISTEN, p50", 3, "ms"),
    _most("pick-up with LISTEN, p99", "pickup/LISTEN, p99", 20, "ms"),
    _most("pick-up by polling, p50, of the interval", "pickup/polling, p50 of the interval", 0.55, "×"),
    _most("WAL per job, of the raw statements", "cost/defaults, WAL", 1.15, "×", base="cost/raw, WAL"),
    _most("idle worker above a bare django.setup()", "memory/idle above bare, RSS", 15, "MB"),
    _most("growth over 100k jobs", "memory/growth, RSS", 5, "MB"),
]

BUFFERS = {
    "claim 1": 30,
    "claim 50": 900,
    "complete 50": 500,
    "renew 50": 250,
    "idle promotion": 6,
    "reclaim probe": 600,
    "claim 1 after 100k jobs under a snapshot": 40,
}

"""What was measured: for each name one number per round, and what was found wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from .drain import Drained


@dataclass(slots=True)
class Results:
    """Samples by name; a name reads `group/what`. `facts` says where, `notes` hold tables of other kinds."""

    facts: dict[str, Any] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)
    checked_jobs: int = 0
    given_back: int = 0

    def add(self, name: str, value: float, unit: str) -> None:
        """Take note of one sample."""
        self.samples.setdefault(name, []).append(value)
        self.units[name] = unit
        print(f"  {name:44} {number(value)} {unit}", flush=True)

    def add_drain(self, name: str, *drains: Drained) -> None:
        """Take note of one drain, or of the medians of several: rate, WAL, CPU of the workers, what went wrong."""
        self.add(name, median(drained.rate for drained in drains), "jobs/s")
        self._add_quietly(f"{name}, WAL", [drained.wal_bytes for drained in drains], "bytes/job")
        self._add_quietly(
            f"{name}, CPU", [drained.worker_cpu_seconds * 1e6 / drained.jobs for drained in drains], "µs/job"
        )
        if drains[0].statements is not None:
            self.add(f"{name}, statements", drains[0].statements, "per job")
        self.checked_jobs += sum(drained.jobs for drained in drains)
        self.given_back += sum(drained.given_back for drained in drains)
        wrong = sum(drained.wrong for drained in drains)
        if wrong:
            self.wrong[name] = self.wrong.get(name, 0) + wrong
            print(f"  {name}: {wrong} JOBS LOST OR RUN TWICE", flush=True)

    def _add_quietly(self, name: str, values: Sequence[float], unit: str) -> None:
        self.samples.setdefault(name, []).append(median(values))
        self.units[name] = unit

    def ratio(self, name: str, floor: str) -> list[float]:
        """Return the ratios of two names, round by round: what slows a round down slows both."""
        pairs = zip(self.samples.get(name, []), self.samples.get(floor, []), strict=False)
        return [value / base for value, base in pairs]


def number(value: float) -> str:
    """Return the value with three or four digits, as a person would write it."""
    if value >= 1000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"

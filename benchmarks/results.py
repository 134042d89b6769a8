"""What was measured: for each name one number per round, and what was found wrong."""

from __future__ import annotations

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

    def add_drain(self, name: str, drained: Drained) -> None:
        """Take note of a drain: its rate, its WAL, the CPU of its workers, and jobs that did not end once."""
        self.add(name, drained.rate, "jobs/s")
        self.samples.setdefault(f"{name}, WAL", []).append(drained.wal_bytes)
        self.units[f"{name}, WAL"] = "bytes/job"
        if drained.worker_cpu_seconds:
            self.samples.setdefault(f"{name}, CPU", []).append(
                drained.worker_cpu_seconds / drained.jobs * 1e6
            )
            self.units[f"{name}, CPU"] = "µs/job"
        if drained.statements is not None:
            self.add(f"{name}, statements", drained.statements, "per job")
        self.checked_jobs += drained.jobs
        self.given_back += drained.given_back
        if drained.wrong:
            self.wrong[name] = self.wrong.get(name, 0) + drained.wrong
            print(f"  {name}: {drained.wrong} JOBS LOST OR RUN TWICE", flush=True)

    def median(self, name: str) -> float | None:
        """Return the median of the samples, None without any."""
        return median(self.samples[name]) if self.samples.get(name) else None

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

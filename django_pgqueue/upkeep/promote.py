"""Scheduled jobs whose time has come become ready."""

from __future__ import annotations

from dataclasses import dataclass

from ..enqueueing import next_due, promote


@dataclass(frozen=True, slots=True, kw_only=True)
class Promote:
    """Promotes due jobs in batches."""

    using: str

    def run_once(self) -> int:
        """Promote one batch; return how many became ready."""
        return promote(using=self.using)

    def next_in(self) -> float | None:
        """Return in how many seconds the next job is due, so that it starts on time; None without one."""
        return next_due(using=self.using)

"""Scheduled jobs whose time has come become ready."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connections

from ..database import queue_database
from ..sql import upkeep as statements


def promote(*, limit: int = 1000, using: str | None = None) -> int:
    """Make up to `limit` scheduled jobs ready whose time has come by the database's clock; return how many."""
    with connections[queue_database(using)].cursor() as cursor:
        cursor.execute(statements.PROMOTE, {"limit": limit})
        return len(cursor.fetchall())


def next_due(*, using: str | None = None) -> float | None:
    """Return in how many seconds the next scheduled job is due by the database's clock; None without one."""
    with connections[queue_database(using)].cursor() as cursor:
        cursor.execute(statements.NEXT_DUE)
        row = cursor.fetchone()
    return None if row is None else max(float(row[0]), 0.0)


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

"""Jobs whose lease has expired and that have nothing left to try."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connections

from .. import sql
from ..rejections import queue_database


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """A job that ended because its last lease expired."""

    job_id: int
    generation: int
    state: str
    task: str
    queue: str
    backend: str


def exhaust(*, limit: int = 500, using: str | None = None) -> list[Spent]:
    """End up to `limit` expired jobs that are out of attempts (failed) or were to be cancelled (cancelled)."""
    with connections[queue_database(using)].cursor() as cursor:
        cursor.execute(sql.EXHAUST, {"limit": limit})
        rows = cursor.fetchall()
    return [
        Spent(job_id=row[0], generation=row[1], state=row[2], task=row[3], queue=row[4], backend=row[5])
        for row in rows
    ]

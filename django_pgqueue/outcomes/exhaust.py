"""Jobs whose lease has expired and that have nothing left to try."""

from __future__ import annotations

from collections.abc import Collection
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


def exhaust(
    *, held: Collection[tuple[int, int]] = (), limit: int = 500, using: str | None = None
) -> list[Spent]:
    """End up to `limit` expired jobs that are out of attempts (failed) or were to be cancelled (cancelled).

    The lease keys in `held` are left alone: the caller runs these jobs itself and may still renew them.
    """
    with connections[queue_database(using)].cursor() as cursor:
        cursor.execute(
            sql.EXHAUST,
            {
                "limit": limit,
                "held_ids": [job_id for job_id, _ in held],
                "held_generations": [generation for _, generation in held],
            },
        )
        rows = cursor.fetchall()
    return [
        Spent(job_id=row[0], generation=row[1], state=row[2], task=row[3], queue=row[4], backend=row[5])
        for row in rows
    ]

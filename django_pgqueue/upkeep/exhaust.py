"""Jobs whose lease has expired and that have nothing left to try end."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from django.db import connections

from ..announcing import tell_spent
from ..database import queue_database
from ..lease import Key, left_alone
from ..log import about, logger
from ..outcomes import Spent
from ..sql import upkeep as statements


def exhaust(*, held: Collection[Key] = (), limit: int = 500, using: str | None = None) -> list[Spent]:
    """End up to `limit` expired jobs that are out of attempts (failed) or were to be cancelled (cancelled).

    The lease keys in `held` are left alone: the caller runs these jobs itself and may still renew them.
    """
    with connections[queue_database(using)].cursor() as cursor:
        cursor.execute(statements.EXHAUST, {"limit": limit, **left_alone(held)})
        return [Spent(*row) for row in cursor.fetchall()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhaust:
    """Ends spent jobs in batches and tells who listens; `held` gives the keys of what this process runs itself."""

    using: str
    held: Callable[[], Collection[Key]] = tuple

    def run_once(self) -> int:
        """End one batch; return how many jobs ended."""
        spent = exhaust(held=self.held(), using=self.using)
        for job in spent:
            logger.warning(
                "Job %s: its lease expired and it is now %s",
                job.job_id,
                job.state,
                extra=about("exhausted", job),
            )
            tell_spent(job, using=self.using)
        return len(spent)

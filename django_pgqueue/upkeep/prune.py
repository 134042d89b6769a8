"""Jobs that ended long enough ago are deleted, with their failures, effects and rejections."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import connections

from ..sql import upkeep as statements
from ..sql.workers import PRUNE_WORKERS

PAGE = 2000
MOST_PAGES = 20


@dataclass(slots=True, kw_only=True)
class Prune:
    """Walks the jobs by id, a page at a time, from the oldest to the first that is too young to be deleted.

    None keeps jobs for ever. Each worker walks on its own; rows that another one deletes are skipped.
    """

    using: str
    keep_done: timedelta | None
    keep_failed: timedelta | None
    page: int = PAGE
    after: int = 0

    def run_once(self) -> int:
        """Look at pages until one had something to delete, at most MOST_PAGES; return how many jobs were deleted."""
        for _ in range(MOST_PAGES):
            deleted, goes_on = self._prune_page()
            if deleted or not goes_on:
                return deleted
        return 0

    def _prune_page(self) -> tuple[int, bool]:
        given: dict[str, Any] = {
            "after": self.after,
            "limit": self.page,
            "keep_done": self.keep_done,
            "keep_failed": self.keep_failed,
        }
        with connections[self.using].cursor() as cursor:
            cursor.execute(statements.PRUNE, given)
            deleted, last_id, size, all_old = cursor.fetchone()
            goes_on = size == self.page and bool(all_old)
            if not goes_on:
                cursor.execute(PRUNE_WORKERS)
        self.after = last_id if goes_on else 0
        return deleted, goes_on

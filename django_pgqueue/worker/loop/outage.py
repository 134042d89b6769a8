"""A database that does not answer: bounded patience, bounded logging."""

from __future__ import annotations

import time

from ...faults import first_line
from ...log import about, logger

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
LOG_SECONDS = 30.0


class Outage:
    """Whether the database is away, since when, and how long to wait before the next try."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._logged_at = 0.0
        self._pause = 0.0

    @property
    def is_on(self) -> bool:
        """Whether the last try failed."""
        return self._since is not None

    def note(self, error: BaseException) -> float:
        """Note a failed try; return for how many seconds to wait. Logged at once, then twice a minute."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            self._logged_at = now - LOG_SECONDS
            self._pause = FIRST_PAUSE_SECONDS
        else:
            self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)
        if now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            logger.warning(
                "The database does not answer (%s: %s); waiting",
                type(error).__name__,
                first_line(error),
                extra=about("outage"),
            )
        return self._pause

    def over(self) -> None:
        """Note a try that succeeded."""
        if self._since is not None:
            seconds = time.monotonic() - self._since
            self._since = None
            logger.warning("The database is back after %.1f s", seconds, extra=about("outage_over"))

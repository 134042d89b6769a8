"""Ends whatever has ended since the last flush, in one statement, and gives each its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import DatabaseError, transaction

from ..connections import is_about_data
from ..log import logger
from ..outcomes import Ended, Ending, end, failed, settle
from ..payloads import ErrorText

Accepted = dict[tuple[int, int], tuple[str, datetime | None]]

UNSTORABLE = ErrorText(
    exception_class="django_pgqueue.exceptions.InvalidPayload",
    message="The outcome of this attempt could not be stored.",
    traceback="",
)


class Completer:
    """Writes endings. Used by the loop only, on the loop's connection."""

    def __init__(self, *, using: str) -> None:
        self._using = using

    def end(self, endings: Sequence[Ending]) -> Accepted:
        """End the batch, inside the caller's transaction; return what was accepted."""
        return end(endings, using=self._using)

    def end_singly(self, endings: Sequence[Ending]) -> Accepted:
        """End one by one, each in its own transaction, after the database refused the batch's data.

        One that is refused again gets a constant text instead of its outcome: recording must not fail.
        Raises DatabaseError if the data is not the problem.
        """
        accepted: Accepted = {}
        for ending in endings:
            try:
                accepted |= self._end_alone(ending)
            except DatabaseError as error:
                if not is_about_data(error):
                    raise
                logger.exception(
                    "The outcome of job %s could not be stored",
                    ending.lease.job_id,
                    extra={"event": "unstorable", "job_id": ending.lease.job_id},
                )
                accepted |= self._end_alone(failed(ending.lease, UNSTORABLE, None))
        return accepted

    def _end_alone(self, ending: Ending) -> Accepted:
        with transaction.atomic(using=self._using):
            return self.end([ending])

    def settle(self, endings: Sequence[Ending], accepted: Accepted) -> list[Ended]:
        """Give every ending its verdict, after the commit."""
        return settle(endings, accepted, using=self._using)

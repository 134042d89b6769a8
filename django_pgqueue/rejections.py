"""The ledger of refused writes."""

from __future__ import annotations

from collections.abc import Sequence

from .connections import apart
from .faults import is_outage
from .log import about, logger
from .models import Rejection
from .signals import completion_rejected, tell
from .states import Action
from .verdicts import Refused


def record(refused: Sequence[Refused], *, using: str) -> None:
    """Keep refused writes as rows, in a transaction of their own, and tell who listens.

    Raises only if the database is away. A ledger that refuses its rows (a trigger, a full table) is logged as an
    error, and changes nothing for the job or its worker.
    """
    if not refused:
        return
    rows = [
        Rejection(
            job_id=item.job_id,
            generation=item.generation,
            current_generation=item.observed.generation if item.observed else None,
            seen_lease_until=item.observed.lease_until if item.observed else None,
            seen_state=item.observed.state if item.observed else "",
            late_by=item.late_by,
            action=item.action,
            verdict=item.verdict,
            worker=item.worker,
        )
        for item in refused
    ]
    try:
        with apart(using):
            Rejection.objects.using(using).bulk_create(rows)
    except Exception as error:
        if is_outage(error):
            raise
        logger.error("Refused writes could not be recorded", exc_info=True, extra=about("unrecorded"))
    for item in refused:
        if item.action != Action.RENEW:  # the heartbeat tells of a lost lease by itself
            _tell(item)


def _tell(item: Refused) -> None:
    current = item.observed.generation if item.observed else None
    logger.warning(
        "Job %s: %s by generation %s was refused (%s; the job is at generation %s)",
        item.job_id,
        item.action,
        item.generation,
        item.verdict,
        current,
        extra=about("rejected", item),
    )
    tell(
        completion_rejected,
        Rejection,
        job_id=item.job_id,
        generation=item.generation,
        current_generation=current,
        action=item.action,
        verdict=item.verdict,
        worker=item.worker,
        late_by=item.late_by,
    )

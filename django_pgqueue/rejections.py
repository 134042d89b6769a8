"""The ledger of refused writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
            **_facts(item),
            seen_lease_until=item.observed.lease_until if item.observed else None,
            seen_state=item.observed.state if item.observed else "",
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
    facts = _facts(item)
    logger.warning(
        "Job %(job_id)s: %(action)s by generation %(generation)s was refused"
        " (%(verdict)s; the job is at generation %(current_generation)s)",
        facts,
        extra=about("rejected", item),
    )
    tell(completion_rejected, Rejection, **facts)


def _facts(item: Refused) -> dict[str, Any]:
    facts = {
        name: getattr(item, name)
        for name in ("job_id", "generation", "action", "verdict", "worker", "late_by")
    }
    return {**facts, "current_generation": item.observed.generation if item.observed else None}

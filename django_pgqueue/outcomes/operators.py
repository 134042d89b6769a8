"""What an operator may do to a job: cancel, retry, run now. Each is one compare-and-set on the job's state."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import IntegrityError, connections, transaction

from ..database import queue_database
from ..models import Job
from ..sql import operating
from ..states import FINISHED_STATES, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Whether the job was changed, and what to tell the operator: the new state, or why not."""

    accepted: bool
    message: str


def cancel(job_id: int, *, using: str | None = None) -> Reply:
    """Cancel a waiting job, or ask a running one to stop; its owner or the end of its lease confirms that.

    The reply is one of "cancelled", "cancellation requested" and, refused, the state the job has already ended in.
    """
    state = _change(operating.CANCEL, job_id, using)
    if state is None:
        return _refused(job_id, using)
    if state == State.RUNNING:
        return Reply(accepted=True, message="cancellation requested")
    return Reply(accepted=True, message="cancelled")


def retry(job_id: int, *, using: str | None = None) -> Reply:
    """Make an ended job ready again with all its attempts; its generation and history are kept.

    Refused for a job that has not ended, and for one whose unique key another live job holds.
    """
    using = queue_database(using)
    try:
        with transaction.atomic(using=using):
            state = _change(operating.RETRY, job_id, using)
    except IntegrityError:
        return Reply(accepted=False, message="another live job holds its unique key")
    return _refused(job_id, using) if state is None else Reply(accepted=True, message="ready")


def run_now(job_id: int, *, using: str | None = None) -> Reply:
    """Make a scheduled job ready at once, whether it waits for its time or for a retry."""
    state = _change(operating.RUN_NOW, job_id, using)
    return _refused(job_id, using) if state is None else Reply(accepted=True, message="ready")


def _change(statement: str, job_id: int, using: str | None) -> str | None:
    with connections[queue_database(using)].cursor() as cursor:
        cursor.execute(statement, {"id": job_id})
        row = cursor.fetchone()
    return None if row is None else str(row[0])


def _refused(job_id: int, using: str | None) -> Reply:
    state = Job.objects.using(queue_database(using)).filter(pk=job_id).values_list("state", flat=True).first()
    if state is None:
        return Reply(accepted=False, message="the job no longer exists")
    ended = "has already ended as" if state in FINISHED_STATES else "is"
    return Reply(accepted=False, message=f"the job {ended} {state}")

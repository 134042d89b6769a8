"""Deleting jobs from the admin: in batches, without listing every row that goes with them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import connections, transaction
from django.db.models import ProtectedError, RestrictedError
from django.db.models.deletion import Collector
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..database import queue_database
from ..models import Failure, Job
from ..states import State
from .operations import LOCK_WAIT, LONGEST_REQUEST

BATCH = 500
COUNTED_FAILURES = 1_000


@dataclass(slots=True, kw_only=True)
class Deleted:
    """How many jobs were deleted, and how many were left and why."""

    jobs: int = 0
    in_use: int = 0
    protected: int = 0
    not_reached: int = 0


def delete(
    job_ids: Sequence[int],
    *,
    before: Callable[[Any], object] = lambda jobs: None,
    longest: timedelta = LONGEST_REQUEST,
) -> Deleted:
    """Delete the jobs with their failures, a batch per transaction; rows that someone has locked are left.

    `before` is called with the jobs of each batch, in its transaction. Locks are taken in id order.
    """
    result = Deleted()
    deadline = time.monotonic() + longest.total_seconds()
    for start in range(0, len(job_ids), BATCH):
        batch = list(job_ids[start : start + BATCH])
        if time.monotonic() > deadline:
            result.not_reached += len(batch)
        else:
            _delete_batch(batch, before, result)
    return result


def _delete_batch(batch: list[int], before: Callable[[Any], object], result: Deleted) -> None:
    using = queue_database()
    jobs = Job.objects.using(using)
    try:
        with transaction.atomic(using=using):
            rows = jobs.filter(pk__in=batch).order_by("pk").select_for_update(skip_locked=True)
            held = list(rows.values_list("pk", flat=True))
            doomed = jobs.filter(pk__in=held).only("pk", "task")
            before(doomed)
            deleted = doomed.delete()[1].get(Job._meta.label, 0)
    except (ProtectedError, RestrictedError):
        if len(batch) == 1:
            result.protected += 1
            return
        for job_id in batch:
            _delete_batch([job_id], before, result)
        return
    result.jobs += deleted
    if len(held) < len(batch):
        result.in_use += jobs.filter(pk__in=set(batch) - set(held)).count()


def delete_one(job: Any) -> None:
    """Delete one job, not waiting long for a row that a running job holds. Raises OperationalError then."""
    with connections[queue_database()].cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [LOCK_WAIT])
    job.delete(using=queue_database())


def running_among(job_ids: Sequence[int]) -> int:
    """Return how many of the jobs are running."""
    return Job.objects.using(queue_database()).filter(pk__in=job_ids, state=State.RUNNING).count()


def summary(job: Any) -> list[str]:
    """Return what goes when the job is deleted, as lines."""
    using = queue_database()
    failures = Failure.objects.using(using).filter(job_id=job.pk)[: COUNTED_FAILURES + 1].count()
    shown = f"{COUNTED_FAILURES}+" if failures > COUNTED_FAILURES else str(failures)
    lines = [str(job)]
    if failures:
        lines.append(ngettext("%(count)s failure", "%(count)s failures", failures) % {"count": shown})
    if job.state == State.RUNNING:
        lines.append(running_note(1))
    return lines


def running_note(count: int) -> str:
    """Return what it means to delete running jobs."""
    return ngettext(
        "%(count)s job is running: its worker goes on until it notices, and its completion will be refused.",
        "%(count)s jobs are running: their workers go on until they notice, and their completions will be refused.",
        count,
    ) % {"count": count}


def protectors(job: Any) -> list[str]:
    """Return the rows of other apps that forbid deleting the job."""
    try:
        Collector(using=queue_database(), origin=job).collect([job])
    except ProtectedError as error:
        return [str(row) for row in error.protected_objects]
    except RestrictedError as error:
        return [str(row) for row in error.restricted_objects]
    return []


def outcome_lines(result: Deleted) -> list[tuple[str, bool]]:
    """Return what to tell the operator, each with whether it is good news."""
    lines = [
        (
            ngettext("%(count)s job deleted.", "%(count)s jobs deleted.", result.jobs)
            % {"count": result.jobs},
            True,
        )
    ]
    reasons = [
        (result.in_use, _("in use by its worker; try again")),
        (result.protected, _("other rows refer to it and forbid it")),
        (result.not_reached, _("not reached in time; run the action again")),
    ]
    for count, reason in reasons:
        if count:
            text = ngettext(
                "%(count)s job not deleted: %(reason)s.", "%(count)s jobs not deleted: %(reason)s.", count
            )
            lines.append((text % {"count": count, "reason": reason}, False))
    return lines

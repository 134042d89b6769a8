"""Retry, cancel and run now from the admin: one job at a time, through the operators' transitions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, LogEntry
from django.db import OperationalError, connections, transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..database import queue_database
from ..faults import sqlstate
from ..models import Job
from ..outcomes import operators
from ..outcomes.operators import Reply
from ..states import as_id
from .changelist import LISTED

# A web server kills a request after 30 s as a rule; what was not reached by then is reported instead.
LONGEST_REQUEST = timedelta(seconds=20)
# A running job may hold its own row (in `context.fence()`, or for its whole run if it is transactional).
LOCK_WAIT = "1s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One thing an operator can do to a job."""

    name: str
    label: Any
    transition: Callable[..., Reply]


RETRY = Verb(name="retry", label=gettext_lazy("Retry"), transition=operators.retry)
CANCEL = Verb(name="cancel", label=gettext_lazy("Cancel"), transition=operators.cancel)
RUN_NOW = Verb(name="run_now", label=gettext_lazy("Run now"), transition=operators.run_now)
VERBS = {verb.name: verb for verb in (RETRY, CANCEL, RUN_NOW)}


@dataclass(slots=True, kw_only=True)
class Tally:
    """What became of the jobs, counted by reason."""

    changed: list[int] = field(default_factory=list)
    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    not_reached: int = 0


def chosen_ids(request: HttpRequest, visible: QuerySet[Any], listed: QuerySet[Any]) -> list[int]:
    """Return the ids an action is for, in id order: the whole list, or the rows that were ticked.

    Ticked rows are taken as ticked even if the list's filter does not match them any more: then the transition
    says why it refuses them, instead of passing over them in silence.
    """
    if request.POST.get("select_across") == "1":
        return sorted(listed.values_list("pk", flat=True)[:LISTED])
    ticked = {as_id(value.strip()) for value in request.POST.getlist(ACTION_CHECKBOX_NAME)} - {None}
    return sorted(visible.filter(pk__in=ticked).values_list("pk", flat=True))


def apply(verb: Verb, job_ids: Iterable[int], *, longest: timedelta = LONGEST_REQUEST) -> Tally:
    """Do `verb` to each job, in a transaction of its own, until `longest` has passed."""
    using = queue_database()
    tally = Tally()
    deadline = time.monotonic() + longest.total_seconds()
    for job_id in job_ids:
        if time.monotonic() > deadline:
            tally.not_reached += 1
            continue
        reply = _one(verb, job_id, using)
        if reply.accepted:
            tally.changed.append(job_id)
            tally.accepted[reply.message] += 1
        else:
            tally.refused[reply.message] += 1
    return tally


def _one(verb: Verb, job_id: int, using: str) -> Reply:
    """Do `verb` to one job, not waiting long for a row that a running job holds."""
    try:
        with transaction.atomic(using=using):
            with connections[using].cursor() as cursor:
                cursor.execute("SELECT set_config('lock_timeout', %s, true)", [LOCK_WAIT])
            return verb.transition(job_id, using=using)
    except OperationalError as error:
        if not is_locked(error):
            raise
        return Reply(accepted=False, message=_("the job's row is in use; try again"))


def is_locked(error: OperationalError) -> bool:
    """Whether a lock was not to be had in LOCK_WAIT (lock_not_available)."""
    return sqlstate(error) == "55P03"


def log(request: HttpRequest, verb: Verb, job_ids: Sequence[int]) -> None:
    """Write who did it to the admin's history of each job."""
    jobs = Job.objects.using(queue_database()).filter(pk__in=job_ids).only("pk", "task")
    if request.user.pk is not None and job_ids:
        LogEntry.objects.log_actions(
            user_id=request.user.pk,
            queryset=jobs,
            action_flag=CHANGE,
            change_message=str(verb.label),
        )


def report(request: HttpRequest, verb: Verb, tally: Tally) -> None:
    """Tell how many jobs were changed, and how many were refused and why."""
    for reason, count in sorted(tally.accepted.items()):
        text = ngettext(
            "%(verb)s: %(count)s job changed: %(outcome)s.",
            "%(verb)s: %(count)s jobs changed: %(outcome)s.",
            count,
        )
        messages.success(request, text % {"verb": verb.label, "count": count, "outcome": _(reason)})
    for reason, count in sorted(tally.refused.items()):
        text = ngettext(
            "%(verb)s: %(count)s job was refused: %(reason)s.",
            "%(verb)s: %(count)s jobs were refused: %(reason)s.",
            count,
        )
        messages.warning(request, text % {"verb": verb.label, "count": count, "reason": _(reason)})
    if tally.not_reached:
        text = ngettext(
            "%(verb)s: %(count)s job was not reached in time; run the action again.",
            "%(verb)s: %(count)s jobs were not reached in time; run the action again.",
            tally.not_reached,
        )
        messages.warning(request, text % {"verb": verb.label, "count": tally.not_reached})
    if not (tally.accepted or tally.refused or tally.not_reached):
        messages.warning(
            request, _("%(verb)s: none of the chosen jobs exists any more.") % {"verb": verb.label}
        )

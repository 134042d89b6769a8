"""The queue's words as values: states, verdicts, actions and kinds of failure; and the limits of its columns."""

from __future__ import annotations

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _

MAX_QUEUE_NAME = 100
MAX_UNIQUE_KEY = 255
MAX_TASK_PATH = 500
MAX_EFFECT_KEY = 200
LARGEST_ID = 2**63 - 1
# Past this a claim could not raise the number any more: such a row is left alone instead of failing the batch.
LAST_GENERATION = LARGEST_ID - 1


class State(TextChoices):
    """Where a job is in its life."""

    SCHEDULED = "scheduled", _("scheduled")
    READY = "ready", _("ready")
    RUNNING = "running", _("running")
    DONE = "done", _("done")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")


LIVE_STATES = (State.SCHEDULED, State.READY, State.RUNNING)
FINISHED_STATES = (State.DONE, State.FAILED, State.CANCELLED)


class Action(TextChoices):
    """A write that must present the generation of its lease."""

    COMPLETE = "complete", _("complete")
    FAIL = "fail", _("fail")
    RELEASE = "release", _("release")
    RENEW = "renew", _("renew")
    FENCE = "fence", _("fence")
    EFFECT = "effect", _("effect")


class Verdict(TextChoices):
    """What a fenced write got."""

    ACCEPTED = "accepted", _("accepted")
    ALREADY_ACCEPTED = "already_accepted", _("already accepted")
    SUPERSEDED = "superseded", _("superseded")
    EXPIRED = "expired", _("expired")
    NOT_RUNNING = "not_running", _("not running")
    MISSING = "missing", _("missing")

    @property
    def is_rejection(self) -> bool:
        """Whether the write was refused."""
        return self not in (Verdict.ACCEPTED, Verdict.ALREADY_ACCEPTED)


class Kind(TextChoices):
    """Why an attempt failed."""

    ERROR = "error", _("error")
    LEASE_EXPIRED = "lease_expired", _("lease expired")
    TIMEOUT = "timeout", _("timeout")
    CRASHED = "crashed", _("crashed")
    CANCELLED = "cancelled", _("cancelled")


class Fencing(TextChoices):
    """Which completions are accepted: see `FENCING`."""

    TOKEN = "token", _("token")
    STRICT = "strict", _("strict")


def as_id(value: object) -> int | None:
    """Return the id that `value`, a whole number or its digits, is; None if it can be no row's."""
    text = str(value) if isinstance(value, str | int) else ""
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(LARGEST_ID)):
        return None
    return int(text) if int(text) <= LARGEST_ID else None

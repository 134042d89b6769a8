"""The home of the queue's queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from django.db.models import (
    BooleanField,
    DateTimeField,
    F,
    Func,
    OuterRef,
    Q,
    QuerySet,
    SmallIntegerField,
    Subquery,
)
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now

from .states import LAST_GENERATION, LIVE_STATES, Action, State

if TYPE_CHECKING:
    from .models import Job  # a floor above, for types only


class Negated(Func):
    """`-expression`, as the claim index orders by priority: higher first, in one direction with the id."""

    template = "(-%(expressions)s)"
    arity = 1
    output_field = SmallIntegerField()


class ClockTimestamp(Func):
    """The database's clock now, where Django's `Now()` is the start of the statement."""

    template = "clock_timestamp()"
    output_field = DateTimeField()


AFTER_POSITION = RawSQL(
    "((-django_pgqueue_job.priority), django_pgqueue_job.id) > (wanted.negated_priority, wanted.id)",
    (),
    output_field=BooleanField(),
)


class JobQuerySet(QuerySet["Job"]):
    """Jobs by where they are in their life. Times are compared with the database's clock only."""

    def ready(self) -> Self:
        """Jobs that a worker may claim."""
        return self.filter(state=State.READY)

    def running(self) -> Self:
        """Jobs under a lease, expired or not."""
        return self.filter(state=State.RUNNING)

    def expired(self) -> Self:
        """Running jobs whose lease has expired."""
        return self.running().filter(lease_until__lt=Now())

    def live(self) -> Self:
        """Jobs that have not ended."""
        return self.filter(state__in=LIVE_STATES)

    def held_by(self, lease: Any) -> Self:
        """The job of `lease`, if that lease's generation still owns it."""
        return self.running().filter(pk=lease.job_id, generation=lease.generation)

    def unexpired(self) -> Self:
        """Jobs whose lease has not expired at this very moment, also late in a transaction."""
        return self.filter(lease_until__gt=ClockTimestamp())

    def candidates(self) -> QuerySet[Job, Any]:
        """Lock ready jobs of the queue `wanted.queue`, best priority first, skipping locked rows.

        For the claim statement, which limits them and names `wanted`: a queue and the position after which to look.
        Needs the index on (queue, -priority, id) of ready rows: queue and position are both index conditions.
        Every condition is on the locked row itself, so it is checked again after the lock.
        """
        return (
            self.ready()
            .filter(AFTER_POSITION, queue=RawSQL("wanted.queue", ()))
            # Written by hand only: a later time although ready, a counter at its end.
            .filter(run_after__lte=Now(), generation__lt=LAST_GENERATION)
            .order_by(Negated("priority"), "id")
            .select_for_update(skip_locked=True)
            .values("pk")
        )


def count_of(queryset: QuerySet[Any]) -> Subquery:
    """Return a subquery that counts the rows of `queryset`, without joining them."""
    counted = queryset.order_by().annotate(_count=Func(F("pk"), function="count")).values("_count")
    return Subquery(counted)


class RejectionQuerySet(QuerySet[Any]):
    """Refused writes."""

    def endings(self) -> Self:
        """Refused attempts to end a job: its rejected completions and failures."""
        return self.filter(action__in=(Action.COMPLETE, Action.FAIL))

    def of_outer_job(self) -> Self:
        """Rejections of the job of an outer query."""
        return self.filter(job_id=OuterRef("pk"))


RUNNING_HAS_LEASE = (Q(state=State.RUNNING) & Q(lease_until__isnull=False)) | (
    ~Q(state=State.RUNNING) & Q(lease_until__isnull=True)
)

"""The `django.tasks` backend. It imports models only when used, so that `@task` works in any `models.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage
from django.utils import timezone

from .compat import BaseTaskBackend, InvalidTask, Task, TaskResult, TaskResultDoesNotExist, TaskResultStatus
from .conf import Options, backend_aliases, read_options
from .database import queue_database
from .payloads import encode_payload
from .states import as_id
from .tasks import PgTask, check_path, check_task

if TYPE_CHECKING:
    from .enqueueing import Request


class PgQueueBackend(BaseTaskBackend):
    """Enqueues jobs as rows of the queue's table, in the caller's transaction."""

    task_class = PgTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @cached_property
    def conf(self) -> Options:
        """The backend's options. Raises ImproperlyConfigured, naming the option that is wrong."""
        return read_options(self.alias, self.options)

    @property
    def database(self) -> str:
        """Alias of the queue's database: DATABASE, or what the routers say."""
        return queue_database(self.conf.database)

    def validate_task(self, task: Task) -> None:
        """Refuse a task that this backend cannot run. Raises InvalidTask, naming the option and its value."""
        check_task(task)
        super().validate_task(task)
        check_path(task)

    def enqueue(  # type: ignore[override]  # of any task
        self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> TaskResult:
        """Insert a job and return its result, or that of the live job with the same unique key.

        Raises InvalidPayload before any SQL for arguments that JSON or PostgreSQL cannot hold.
        """
        from .announcing import tell_enqueued  # imports models
        from .enqueueing import enqueue  # imports models
        from .results import make_result, unchecked  # imports models

        self.validate_task(task)
        new = enqueue(
            self._request(task, encode_payload(args, kwargs)), hint=self.conf.listen, using=self.database
        )
        if new.existing:
            return self.get_result(str(new.job_id))
        result = make_result(
            unchecked(task, backend=self.alias),
            new.job_id,
            list(args),
            dict(kwargs),
            status=TaskResultStatus.READY,
            enqueued_at=new.enqueued_at,
        )
        tell_enqueued(type(self), [result])
        return result

    def enqueue_many(self, task: Task, calls: Iterable[Any]) -> Sequence[TaskResult]:
        """Insert a job for each call, a few thousand per round trip, all or nothing; return results in order.

        A call is a tuple of positional arguments, a dict of keyword arguments, or a single argument. `calls`
        may be a generator of any length: the results keep an id each, and are read when looked at.
        """
        from .announcing import tell_enqueued  # imports models
        from .enqueueing import enqueue_many  # imports models
        from .results import EnqueuedMany  # imports models

        self.validate_task(task)
        if isinstance(task, PgTask) and task.unique_key is not None:
            raise InvalidTask("enqueue_many cannot enqueue several jobs under one unique_key.")
        payloads = (encode_payload(*_call(call)) for call in calls)
        ids = enqueue_many(self._request(task, ""), payloads, hint=self.conf.listen, using=self.database)
        results = EnqueuedMany(ids, self.get_result)
        tell_enqueued(type(self), results)
        return results

    def _request(self, task: Task, payload: str) -> Request:
        from .enqueueing import Request  # imports models

        own = task if isinstance(task, PgTask) else None
        return Request(
            task=task.module_path,
            payload=payload,
            queue=task.queue_name,
            priority=task.priority,
            max_attempts=(own and own.max_attempts) or self.conf.max_attempts,
            backend=self.alias,
            run_after=_aware(task.run_after),
            delay=max(own.delay, timedelta(0)) if own and own.delay is not None else None,
            unique_key=own.unique_key if own else None,
        )

    def get_result(self, result_id: str) -> TaskResult:
        """Return the job as a result. Raises TaskResultDoesNotExist for an id that no job has."""
        from .models import Failure, Job  # the app registry is ready by now
        from .results import result_of  # imports models

        job_id = as_id(result_id)
        if job_id is None:
            raise TaskResultDoesNotExist(result_id)
        job = Job.objects.using(self.database).filter(pk=job_id).first()
        if job is None:
            raise TaskResultDoesNotExist(result_id)
        failures = Failure.objects.using(self.database).filter(job_id=job.pk).order_by("id")
        return result_of(job, failures)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Return the problems of a subclass's settings; the app's own check covers this class, once."""
        from .checks import check_backend  # imports models

        return [] if self.alias in backend_aliases() else check_backend(self.alias)


def _aware(value: datetime | None) -> datetime | None:
    """Return the instant in UTC; a naive datetime (only possible without USE_TZ) is in the current time zone.

    Raises InvalidTask for an instant outside the years 1 to 9999 of UTC, which no worker could read back.
    """
    if value is None:
        return None
    try:
        aware = value if timezone.is_aware(value) else timezone.make_aware(value)
        return aware.astimezone(UTC)
    except OverflowError:
        raise InvalidTask(f"run_after is outside the years 1 to 9999 of UTC: {value!r}.") from None


def _call(call: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    if isinstance(call, tuple):
        return call, {}
    if isinstance(call, dict):
        return (), call
    return (call,), {}

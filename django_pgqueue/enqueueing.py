"""Jobs in: one INSERT in the caller's transaction, and uniqueness."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connections, transaction

from .database import queue_database
from .hints import hint_after_commit
from .models import Job
from .querysets import JobQuerySet
from .sql import enqueueing as statements

# A key's holder may end between the refused insert and the look for it; then the key is free again.
_TRIES = 20
BATCH = 2000
BATCH_CHARS = 4 * 1024 * 1024


class Request(NamedTuple):
    """A job to be: `payload` is JSON text; `run_after` or `delay` (added to the database's clock), or neither."""

    task: str
    payload: str
    queue: str
    priority: int
    max_attempts: int
    backend: str
    run_after: datetime | None = None
    delay: timedelta | None = None
    unique_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """The row of a new job; `existing` if a live job with the same unique key stands for it instead."""

    job_id: int
    state: str
    enqueued_at: datetime
    existing: bool = False


def enqueue(request: Request, *, hint: bool = True, using: str | None = None) -> Enqueued:
    """Insert the job in the caller's transaction: invisible until it commits, gone if it rolls back.

    With `hint`, listening workers are told after the commit. A live job (scheduled, ready or running) with
    the same unique key is returned instead; the caller's transaction stays usable.
    """
    using = queue_database(using)
    if request.unique_key is not None:
        statement = statements.ENQUEUE_UNIQUE
    elif request.run_after is None and request.delay is None:
        statement = statements.ENQUEUE_NOW
    else:
        statement = statements.ENQUEUE
    for _ in range(_TRIES):
        with connections[using].cursor() as cursor:
            cursor.execute(statement, request._asdict())
            row = cursor.fetchone()
        if row is not None:
            if hint:
                hint_after_commit(row[1], using=using)
            return Enqueued(job_id=row[0], state=row[1], enqueued_at=row[2])
        holder = _live_jobs(using).filter(unique_key=request.unique_key).only("state", "enqueued_at").first()
        if holder is not None:
            return Enqueued(
                job_id=holder.pk, state=holder.state, enqueued_at=holder.enqueued_at, existing=True
            )
    raise RuntimeError(f"the unique key {request.unique_key!r} was taken and freed again and again")


def enqueue_many(
    request: Request, payloads: Iterable[str], *, hint: bool = True, using: str | None = None
) -> array[int]:
    """Insert a job like `request` for each payload, a few thousand per round trip; return their ids in order.

    All or nothing, in the caller's transaction. Reads the payloads as it goes: memory is 8 bytes a job.
    Raises ValueError for a unique key, which can only be one job's.
    """
    if request.unique_key is not None:
        raise ValueError("jobs enqueued together cannot share a unique key")
    using = queue_database(using)
    connection = connections[using]
    given: dict[str, Any] = {"run_after": request.run_after, "delay": request.delay}
    ids: array[int] = array("q")
    with transaction.atomic(using=using):
        for batch in _batches(payloads):
            with connection.cursor() as cursor:
                if not ids:
                    cursor.execute(statements.MANY_BEGIN, given)
                    state, run_after, sequence = cursor.fetchone()
                cursor.execute(statements.MANY_IDS, {"sequence": sequence, "count": len(batch)})
                new = sorted(row[0] for row in cursor.fetchall())
                with connection.wrap_database_errors, cursor.copy(statements.MANY_COPY) as copy:
                    copy.write(_lines(request, new, batch, state, run_after))
            ids.extend(new)
        if ids and hint:
            hint_after_commit(state, using=using)
    return ids


def _lines(request: Request, ids: list[int], payloads: list[str], state: str, run_after: str) -> str:
    """Return the rows in the text format of COPY."""
    shared = (
        request.task,
        request.queue,
        request.priority,
        state,
        run_after,
        request.max_attempts,
        request.backend,
    )
    rest = "\t".join(_escaped(str(value)) for value in shared)
    return "".join(
        f"{job_id}\t{_escaped(payload)}\t{rest}\n" for job_id, payload in zip(ids, payloads, strict=True)
    )


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\t", r"\t").replace("\n", r"\n").replace("\r", r"\r")


def _batches(payloads: Iterable[str]) -> Iterator[list[str]]:
    """Divide JSON texts into batches that are bounded in number and in size."""
    batch: list[str] = []
    size = 0
    for payload in payloads:
        batch.append(payload)
        size += len(payload)
        if len(batch) >= BATCH or size >= BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _live_jobs(using: str) -> JobQuerySet:
    jobs: JobQuerySet = Job.objects.using(using)
    return jobs.live()

"""The context that a task with `takes_context=True` gets as its first argument."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from asgiref.sync import sync_to_async

from ..compat import TaskContext
from ..exceptions import JobCancelled, LeaseLost
from ..holding import Holding
from .effects import once, save, saved
from .fence import Block, Completion, completing, fenced

_KEYS = uuid.UUID("5f0f2c34-5a43-4b7e-9d0f-0a8c3f3f6d11")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext(TaskContext):  # type: ignore[misc]  # the stubs do not know that it is frozen
    """What a running job knows of its lease, and how it writes under it."""

    holding: Holding

    @property
    def job_id(self) -> int:
        """The job's id."""
        return self.holding.lease.job_id

    @property
    def generation(self) -> int:
        """The fencing number of this claim: higher for every later claim of the job."""
        return self.holding.lease.generation

    @property
    def attempt(self) -> int:
        """Which run this is, 1 for the first; a run that was given back does not count."""
        return self.holding.lease.attempt

    @property
    def idempotency_key(self) -> str:
        """A key for outside receivers, the same on every attempt: derived from the job, never from the attempt.

        It contains the time of the enqueue, so that an id that is used again after a restore gets another key.
        """
        lease = self.holding.lease
        return str(uuid.uuid5(_KEYS, f"{lease.task} {lease.job_id} {lease.enqueued_at.timestamp():.6f}"))

    @property
    def lease_lost(self) -> bool:
        """Whether the worker knows, or must assume, that it no longer owns the job."""
        return self.holding.may_be_lost

    @property
    def should_stop(self) -> bool:
        """Whether the worker is shutting down, so that a long job may tidy up and raise `Snooze`."""
        return self.holding.stopping.is_set()

    def check(self) -> None:
        """Raise LeaseLost or JobCancelled as soon as the worker knows; for long jobs, between steps."""
        if self.holding.may_be_lost:
            raise LeaseLost(self.job_id, self.generation)
        if self.holding.trust.cancel_requested:
            raise JobCancelled(self.job_id)

    def fence(self) -> Block[None]:
        """Return a block whose writes commit only if this worker still owns the job (`with` or `async with`).

        Keep it short: it locks the job's row. Raises LeaseLost, rolls back and leaves a Rejection if the job
        has moved on; ForeignWrite for a write to another database than the queue's.
        """
        return Block(lambda: fenced(self.holding))

    def complete(self, result: Any = None) -> Block[Completion]:
        """Return a block as `fence` does, which also ends the job as done in the same commit.

        `result` may instead be set on what the block yields. What the task returns afterwards is not kept.
        Raises InvalidPayload, and rolls back, for a result that JSON cannot hold.
        """
        return Block(lambda: completing(self.holding, result))

    def once(self, name: str, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Return the saved result of this job's effect `name`, or call `func` and save its result, fenced.

        At-least-once: a crash between the call and the save repeats the call, so pass the idempotency key to
        the receiver. Raises LeaseLost and leaves a Rejection if the job has moved on during the call.
        """
        return once(self.holding, name, func, args, kwargs)

    async def aonce(self, name: str, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Do as `once` in an async task; `func` may be a coroutine function."""
        known, result = await sync_to_async(saved, thread_sensitive=True)(self.holding, name)
        if known:
            return result
        value = func(*args, **kwargs)
        if isawaitable(value):
            value = await value
        return await sync_to_async(save, thread_sensitive=True)(self.holding, name, value)

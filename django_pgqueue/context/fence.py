"""Blocks of business writes that commit only if their writer still owns the job."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import Any, Generic, TypeVar

from asgiref.sync import sync_to_async
from django.db import InterfaceError, OperationalError, connections, transaction

from ..connections import apart, discard
from ..exceptions import ForeignWrite, LeaseLost
from ..holding import Holding
from ..lease import Lease
from ..models import Job
from ..outcomes import Ending, end
from ..payloads import encode_result
from ..rejections import record
from ..states import Action, Verdict
from ..verdicts import sort_out

T = TypeVar("T")

# Statements that may go to another database inside a fenced block; everything else could be a write.
_READ = re.compile(
    r"\s*(?:SELECT\b(?!.*\bFOR\s+(?:NO\s+KEY\s+)?UPDATE\b)|SHOW\b|EXPLAIN\s+SELECT\b)", re.I | re.S
)


class Completion:
    """What `complete()` yields: `result` may be set inside the block."""

    def __init__(self, result: Any = None) -> None:
        self.result = result


class Block(Generic[T]):
    """A context manager for `with`, and for `async with` in async tasks. Enter it once."""

    def __init__(self, make: Callable[[], AbstractContextManager[T]]) -> None:
        self._manager = make()

    def __enter__(self) -> T:
        return self._manager.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._manager.__exit__(kind, error, trace)

    async def __aenter__(self) -> T:
        return await sync_to_async(self.__enter__, thread_sensitive=True)()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await sync_to_async(self.__exit__, thread_sensitive=True)(kind, error, trace)


@contextmanager
def fenced(holding: Holding, action: Action = Action.FENCE) -> Iterator[None]:
    """Run a short transaction that first locks the job's row and verifies ownership.

    The lock keeps the job this worker's until the commit: nobody can reclaim it meanwhile. If the job has
    moved on, the transaction is rolled back, a Rejection is kept and LeaseLost is raised. Lock order: the
    job's row, then the business rows.
    """
    lease = holding.lease
    try:
        with transaction.atomic(using=holding.using), _no_writes_elsewhere(holding.using):
            if not _hold(lease, holding.using):
                raise LeaseLost(*lease.key)
            yield
    except LeaseLost as error:
        if not error.verdict and (error.job_id, error.generation) == lease.key:
            raise _refuse(holding, action) from None
        raise


@contextmanager
def completing(holding: Holding, result: Any = None) -> Iterator[Completion]:
    """Do as `fenced`, and end the job as done in the same commit.

    If the reply to the commit is lost, the row tells whether it happened: done by this same generation means
    that it did, and the block's writes with it. Inside a transaction of the caller's the job ends with that
    one's commit, or goes on if it rolls back.
    """
    completion = Completion(result)
    ending: Ending | None = None
    nested = connections[holding.using].in_atomic_block

    def note() -> None:
        if ending is not None:
            holding.run.result = ending.result
            holding.run.completed = True
            if holding.on_completed is not None:
                holding.on_completed(holding)

    if holding.run.closing:
        raise RuntimeError(
            "complete() inside a block that completes the job already: a transactional task, or another "
            "complete(), ends the job by itself. Use fence() there."
        )
    holding.run.closing = True
    try:
        with fenced(holding, Action.COMPLETE):
            # Before the block's own callbacks, which may raise: the commit counts, not what comes after it.
            transaction.on_commit(note, using=holding.using)
            yield completion
            holding.run.committing = True  # a timeout comes too late from here on
            ending = Ending.done(holding.lease, encode_result(completion.result))
            if not end([ending], using=holding.using, wait=True):
                raise LeaseLost(*holding.lease.key)  # strict fencing, and the lease ran out inside the block
    except (OperationalError, InterfaceError):
        if ending is None or nested or holding.run.completed or not _was_committed(holding):
            raise
        note()
    finally:
        holding.run.closing = False
        holding.run.committing = False


def _hold(lease: Lease, using: str) -> bool:
    jobs = Job.objects.using(using).held_by(lease).select_for_update(no_key=True)
    if lease.is_strict:
        jobs = jobs.unexpired()
    return bool(jobs.values_list("pk"))


def _refuse(holding: Holding, action: Action) -> LeaseLost:
    """Record the refused write, outside the transaction that was rolled back, and return what to raise."""
    lease = holding.lease
    with apart(holding.using):
        (refused,) = sort_out([lease], action, using=holding.using)
        if refused is not None and refused.verdict.is_rejection:
            record([refused], using=holding.using)
    holding.trust.lost = True
    return LeaseLost(*lease.key, verdict=refused.verdict if refused else "")


def _was_committed(holding: Holding) -> bool:
    discard(holding.using)
    try:
        (reply,) = sort_out([holding.lease], Action.COMPLETE, using=holding.using)
    except (OperationalError, InterfaceError):
        return False  # still unknown: the worker's own ending will be judged when the database is back
    return reply is not None and reply.verdict == Verdict.ALREADY_ACCEPTED


@contextmanager
def _no_writes_elsewhere(using: str) -> Iterator[None]:
    def watch(
        execute: Callable[..., Any], statement: Any, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        if not _READ.match(str(statement)):
            alias = context["connection"].alias
            raise ForeignWrite(
                f"a fenced block writes to the database {alias!r}, but the queue is in {using!r}: "
                "the fence cannot guard that write. Keep the business tables on the queue's alias, or write "
                "outside the block with the idempotency key."
            )
        return execute(statement, params, many, context)

    with ExitStack() as stack:
        for alias in connections:
            if alias != using:
                stack.enter_context(connections[alias].execute_wrapper(watch))
        yield

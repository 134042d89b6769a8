"""What the lab's workers run. Each leaves rows behind from which the guarantees can be checked."""

from __future__ import annotations

from typing import Any

from django.db import connection

from ..context import JobContext
from ..tasks import task
from . import facts
from .waiting import pause

MANY_ATTEMPTS = 1000


class Broken(Exception):
    """A job that fails on purpose."""


@task(takes_context=True, max_attempts=MANY_ATTEMPTS)
def plain(context: JobContext, gate: str | None = None, seconds: float = 0.0) -> int:
    """Have one unfenced effect: at-least-once, as for anything outside a fence."""
    _reach(context, "body", gate, seconds)
    _effect(context, "plain")
    return context.generation


@task(takes_context=True, max_attempts=MANY_ATTEMPTS)
def fenced(context: JobContext, gate: str | None = None, seconds: float = 0.0) -> None:
    """Have one effect under a fence, and one that commits together with the completion."""
    _reach(context, "body", gate, seconds)
    with context.fence():
        _effect(context, "fenced")
    with context.complete(result=context.generation):
        _effect(context, "completing")


@task(takes_context=True, transactional=True, max_attempts=MANY_ATTEMPTS)
def transactional(context: JobContext, gate: str | None = None, seconds: float = 0.0) -> int:
    """Have one effect in a body that is one transaction with the completion."""
    _effect(context, "transactional")
    _reach(context, "body", gate, seconds)
    return context.generation


@task(takes_context=True, max_attempts=MANY_ATTEMPTS)
def mail(context: JobContext, gate: str | None = None, keyed: bool = True, fail_first: bool = False) -> Any:
    """Send a mail once, saving the reply, then perhaps fail: the next attempt gets the saved reply."""
    reply = context.once("mail", facts.send_mail, context.idempotency_key if keyed else None)
    _reach(context, "sent", gate, 0.0)
    if fail_first and context.attempt == 1:
        raise Broken("after the mail")
    return reply


@task(takes_context=True, max_attempts=MANY_ATTEMPTS)
def outside(context: JobContext, gate: str | None = None, seconds: float = 0.0) -> str:
    """Need nothing of the queue's database, so that an outage there is only the worker's to bear."""
    facts.tell(context.job_id, context.generation, "body")
    if gate is not None:
        facts.wait_for_gate(gate)
    pause(seconds)
    return "finished"


@task(takes_context=True, max_attempts=MANY_ATTEMPTS)
def flaky(context: JobContext, failures: int = 1) -> int:
    """Fail a few times, then have an effect."""
    if context.attempt <= failures:
        raise Broken(f"attempt {context.attempt}")
    _effect(context, "plain")
    return context.attempt


@task(takes_context=True, max_attempts=MANY_ATTEMPTS)
def polite(context: JobContext) -> None:
    """Wait until told that the lease is lost or the job is cancelled."""
    facts.tell(context.job_id, context.generation, "body")
    while True:
        context.check()
        pause(0.02)


def _reach(context: JobContext, point: str, gate: str | None, seconds: float) -> None:
    if gate is not None:
        facts.tell(context.job_id, context.generation, point)
        facts.wait_for_gate(gate)
    if seconds:
        pause(seconds)


def _effect(context: JobContext, kind: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO lab_effects (job_id, generation, kind, worker) VALUES (%s, %s, %s, %s)",
            [context.job_id, context.generation, kind, context.holding.lease.worker],
        )

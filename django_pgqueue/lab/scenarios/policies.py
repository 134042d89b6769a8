"""The package's own leases where the first article leaves a choice: late results, cancellation, lost claims."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

from django.db import connections, transaction

from ... import leases, outcomes
from ...bounds import LEASE
from ...lease import Lease
from ...models import Rejection
from ...states import Fencing
from ..scenario import Scenarios
from ..stage import Stage
from ..target import ALIAS

scenarios = Scenarios("articles")

SHORT = timedelta(milliseconds=150)


@scenarios.add(
    "late-completion", "A late result that nobody has reclaimed: accepted by token, refused when strict"
)
def late_completion(stage: Stage) -> None:
    stage.enqueue("plain", 2)
    for fencing, verdict, state in (
        (Fencing.TOKEN, "accepted", "done"),
        (Fencing.STRICT, "expired", "running"),
    ):
        lease = _claim(stage, "A", lease=SHORT)._replace(fencing=fencing)
        stage.until_row(
            f"the lease on job {lease.job_id} has expired by the database's clock",
            "SELECT lease_until < clock_timestamp() FROM django_pgqueue_job WHERE id = %s",
            lease.job_id,
        )
        reply = _complete(stage, lease, f", fencing={str(fencing)!r}")
        stage.check(f"under {fencing} fencing the verdict is {verdict}", reply == verdict, reply)
        stage.check_value(
            f"and the job is {state}",
            f"SELECT state FROM django_pgqueue_job WHERE id = {lease.job_id}",
            state,
        )
    _check_rejections(stage, [["complete", "expired", 1, 1]])


@scenarios.add("stale-writes", "Every write of a replaced worker is refused and kept, with who, what and why")
def stale_writes(stage: Stage) -> None:
    stage.enqueue("plain")
    old = _claim(stage, "A", lease=SHORT)
    stage.until_row(
        "the lease has expired",
        "SELECT lease_until < statement_timestamp() FROM django_pgqueue_job WHERE id = 1",
    )
    (new,) = leases.reclaim(worker="worker-B", using=ALIAS)
    stage.record.call("leases.reclaim(worker='worker-B')", _shown(new))
    stage.check("the job is reclaimed at generation 2", new.generation == 2, new.generation)
    renewal = leases.renew([old], using=ALIAS)
    stage.record.call("leases.renew([generation 1])", [str(lost.verdict) for lost in renewal.lost])
    error = RuntimeError("too late")
    replies = [
        _complete(stage, old),
        _call(stage, "outcomes.fail(generation 1)", outcomes.fail(old, error, using=ALIAS)),
        _call(stage, "outcomes.release(generation 1)", outcomes.release(old, using=ALIAS)),
    ]
    stage.check("complete, fail and release are superseded", replies == ["superseded"] * 3, replies)
    reply = _complete(stage, new)
    stage.check("the owner's completion is accepted", reply == "accepted", reply)
    reply = _complete(stage, new)
    stage.check(
        "sent again by the same generation, it is already accepted", reply == "already_accepted", reply
    )
    _check_rejections(
        stage, [[action, "superseded", 1, 2] for action in ("renew", "complete", "fail", "release")]
    )


@scenarios.add(
    "lost-claim-commit", "A rolled-back claim leaves nothing; the worker's id tells whose a number is"
)
def lost_claim_commit(stage: Stage) -> None:
    stage.enqueue("plain")
    with transaction.atomic(using=ALIAS):
        (first,) = leases.claim(worker="worker-A", queues=["default"], using=ALIAS)
        stage.record.call("leases.claim(worker='worker-A'), not committed", _shown(first))
        transaction.set_rollback(True, using=ALIAS)
    stage.record.event("the claim is rolled back")
    second = _claim(stage, "B")
    stage.check("worker B gets the same generation", second.generation == first.generation, second.generation)
    mine = leases.orphans(worker="worker-A", known=[], lease=second.duration, using=ALIAS)
    stage.record.call("leases.orphans(worker='worker-A')", len(mine))
    stage.check("worker A, asking by its id, finds that it owns nothing", mine == [], len(mine))


@scenarios.add(
    "cancel-while-claimed", "A cancellation meets an uncommitted claim: it waits, then asks the owner"
)
def cancel_while_claimed(stage: Stage) -> None:
    stage.enqueue("plain")
    replies: list[Any] = []

    def cancel() -> None:
        replies.append(outcomes.cancel(1, using=ALIAS).message)
        connections[ALIAS].close()

    with transaction.atomic(using=ALIAS):
        (lease,) = leases.claim(worker="worker-A", queues=["default"], using=ALIAS)
        stage.record.call("leases.claim(worker='worker-A'), not committed", _shown(lease))
        canceller = threading.Thread(target=cancel, daemon=True)
        canceller.start()
        stage.until_row(
            "outcomes.cancel(1) waits for the claim's row lock",
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() "
            "AND wait_event_type = 'Lock' AND query LIKE '%%cancel_requested_at%%')",
        )
    canceller.join(20)
    stage.record.call("outcomes.cancel(1)", replies)
    stage.check(
        "the claim won, so its owner is asked to stop", replies == ["cancellation requested"], replies
    )
    renewal = leases.renew([lease], using=ALIAS)
    stage.record.call("leases.renew([generation 1])", {"cancel_requested": len(renewal.cancel_requested)})
    stage.check("the owner learns it with its next heartbeat", lease.key in renewal.cancel_requested)


def _claim(stage: Stage, letter: str, *, lease: timedelta = LEASE.default) -> Lease:
    (claimed,) = leases.claim(worker=f"worker-{letter}", queues=["default"], lease=lease, using=ALIAS)
    stage.record.call(
        f"leases.claim(worker='worker-{letter}', lease={lease.total_seconds():g} s)", _shown(claimed)
    )
    return claimed


def _complete(stage: Stage, lease: Lease, how: str = "") -> str:
    return _call(
        stage,
        f"outcomes.complete(job {lease.job_id}, generation {lease.generation}{how})",
        outcomes.complete(lease, using=ALIAS),
    )


def _call(stage: Stage, text: str, verdict: object) -> str:
    stage.record.call(text, str(verdict))
    return str(verdict)


def _shown(lease: Lease) -> dict[str, object]:
    return {"job_id": lease.job_id, "generation": lease.generation, "worker": lease.worker}


def _check_rejections(stage: Stage, expected: list[list[object]]) -> None:
    rows = stage.facts.run(
        "SELECT action, verdict, generation, current_generation FROM django_pgqueue_rejection ORDER BY id"
    )
    stage.check("every refusal, and nothing else, is on record", rows == expected, rows)
    stage.check(
        "each says who, and how late",
        not Rejection.objects.using(ALIAS).filter(late_by=None).exists()
        and not Rejection.objects.using(ALIAS).exclude(worker="worker-A").exists(),
    )

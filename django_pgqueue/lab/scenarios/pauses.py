"""SIGSTOP at named points, a replacement, SIGCONT: the paused worker cannot end or write what is no longer its own."""

from __future__ import annotations

from .. import invariants, points
from ..processes import Process
from ..scenario import Scenarios
from ..stage import Stage

scenarios = Scenarios("pauses")


@scenarios.add(
    "pause-in-body", "Paused in the body and replaced: the late completion is refused and recorded"
)
def in_body(stage: Stage) -> None:
    _paused_in_body(stage, "plain")
    _await_rejection(stage, "complete")
    rows = stage.facts.run("SELECT kind, generation FROM lab_effects ORDER BY generation")
    stage.check(
        "an effect outside any fence happened twice: hence the key",
        rows == [["plain", 1], ["plain", 2]],
        rows,
    )
    _finish(stage)


@scenarios.add(
    "pause-before-fence", "Paused before its fence and replaced: the fenced writes are refused too"
)
def before_fence(stage: Stage) -> None:
    _paused_in_body(stage, "fenced")
    _await_rejection(stage, "fence")
    rows = stage.facts.run("SELECT kind, generation FROM lab_effects ORDER BY n")
    stage.check("each effect happened once, by the owner", rows == [["fenced", 2], ["completing", 2]], rows)
    _finish(stage)


@scenarios.add(
    "pause-in-transaction", "Paused inside a transactional body: its row lock keeps the job its own"
)
def in_transaction(stage: Stage) -> None:
    stage.enqueue("transactional", gate="go")
    paused = stage.worker("A")
    stage.until_reached(1)
    _freeze(stage, paused)
    stage.worker("B")
    stage.until_row(
        "the lease has been over for another one",
        "SELECT lease_until + interval '2 seconds' < clock_timestamp() FROM django_pgqueue_job",
    )
    stage.check_value("nobody has reclaimed the locked row", "SELECT generation FROM django_pgqueue_job", 1)
    _thaw(stage, paused)
    stage.open_gate("go")
    stage.until_state(1, "done", 1)
    rows = stage.facts.run("SELECT kind, generation FROM lab_effects")
    stage.check("the effect happened once", rows == [["transactional", 1]], rows)
    _finish(stage)


@scenarios.add(
    "pause-after-claim", "Paused after its claim's commit and replaced: whatever it does then is refused"
)
def after_claim(stage: Stage) -> None:
    proxy = stage.proxy()
    trap = proxy.set_trap(points.CLAIM, at="reply")
    stage.enqueue("fenced")
    paused = stage.worker("A", via=proxy.target, wait=False)
    stage.until("worker-A's claim is committed and its reply held", trap.caught.is_set)
    _freeze(stage, paused)
    stage.worker("B")
    stage.until_state(1, "done", 2)
    trap.let_go()
    _thaw(stage, paused)
    # Which write comes first is left to chance: the body's fence, the heartbeat, or giving the job back unrun.
    _await_rejection(stage, "%")
    rows = stage.facts.run("SELECT kind, generation FROM lab_effects ORDER BY n")
    stage.check("each effect happened once, by the owner", rows == [["fenced", 2], ["completing", 2]], rows)
    _finish(stage)


@scenarios.add(
    "pause-before-completion", "Paused with its completion uncommitted, cut off and replaced: refused"
)
def before_completion(stage: Stage) -> None:
    proxy = stage.proxy()
    trap = proxy.set_trap(points.END, at="request")
    stage.enqueue("plain")
    paused = stage.worker("A", via=proxy.target, wait=False)
    stage.until("the commit that ends the job is held before the server", trap.caught.is_set)
    _freeze(stage, paused)
    trap.drop()
    stage.record.event("its connection is cut: the server rolls the completion back")
    stage.worker("B")
    stage.until_state(1, "done", 2)
    _thaw(stage, paused)
    _await_rejection(stage, "complete")
    _finish(stage)


@scenarios.add("pause-after-completion", "Paused after its completion's commit: nothing is left to refuse")
def after_completion(stage: Stage) -> None:
    proxy = stage.proxy()
    trap = proxy.set_trap(points.END, at="reply")
    stage.enqueue("plain")
    paused = stage.worker("A", via=proxy.target, wait=False)
    stage.until("the completion is committed and its reply held", trap.caught.is_set)
    _freeze(stage, paused)
    stage.until_state(1, "done", 1)
    trap.let_go()
    _thaw(stage, paused)
    _finish(stage)
    stage.check_value("no write was refused", "SELECT count(*) FROM django_pgqueue_rejection", 0)


def _paused_in_body(stage: Stage, task: str) -> None:
    stage.enqueue(task, gate="go")
    paused = stage.worker("A")
    stage.until_reached(1)
    _freeze(stage, paused)
    stage.worker("B")
    stage.until_reached(1, 2)
    stage.open_gate("go")
    stage.until_state(1, "done", 2)
    _thaw(stage, paused)


def _await_rejection(stage: Stage, action: str) -> None:
    stage.until_row(
        f"worker-A's {action.replace('%', 'write')} by generation 1 is refused as superseded by generation 2, and kept",
        "SELECT EXISTS (SELECT FROM django_pgqueue_rejection WHERE action LIKE %s AND verdict = 'superseded'"
        " AND generation = 1 AND current_generation = 2 AND worker LIKE 'worker-A-%%' AND late_by IS NOT NULL)",
        action,
    )


def _freeze(stage: Stage, process: Process) -> None:
    process.freeze()
    stage.record.event(f"SIGSTOP to {process.name}")


def _thaw(stage: Stage, process: Process) -> None:
    process.thaw()
    stage.record.event(f"SIGCONT to {process.name}")


def _finish(stage: Stage) -> None:
    stage.stop_workers()
    invariants.check(stage)

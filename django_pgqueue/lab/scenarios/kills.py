"""SIGKILL at named points: whatever a worker had not committed never was, and the rest is taken over."""

from __future__ import annotations

from .. import invariants, points
from ..processes import Process
from ..scenario import Scenarios
from ..stage import Stage

scenarios = Scenarios("kills")


@scenarios.add("kill-after-claim", "SIGKILL after the claim's commit, before the worker knows of it")
def after_claim(stage: Stage) -> None:
    proxy = stage.proxy()
    trap = proxy.set_trap(points.CLAIM, at="reply")
    stage.enqueue("plain")
    doomed = stage.worker("A", via=proxy.target, wait=False)
    stage.until("worker-A's claim is committed and its reply held", trap.caught.is_set)
    stage.check_value("others see the job running", "SELECT state FROM django_pgqueue_job", "running")
    _kill(stage, doomed)
    trap.drop()
    _taken_over(stage)
    _check_effects(stage, [["plain", 2]])
    _check_lost_attempt(stage)
    invariants.check(stage)


@scenarios.add("kill-in-body", "SIGKILL in the middle of a job's body: another worker runs it again")
def in_body(stage: Stage) -> None:
    stage.enqueue("plain", gate="go")
    doomed = stage.worker("A")
    stage.until_reached(1)
    _kill(stage, doomed)
    stage.open_gate("go")
    _taken_over(stage)
    _check_effects(stage, [["plain", 2]])
    _check_lost_attempt(stage)
    invariants.check(stage)


@scenarios.add("kill-in-transaction", "SIGKILL in a transactional body: its writes are gone, and happen once")
def in_transaction(stage: Stage) -> None:
    stage.enqueue("transactional", gate="go")
    doomed = stage.worker("A")
    stage.until_reached(1)
    _kill(stage, doomed)
    _check_effects(stage, [])
    stage.open_gate("go")
    _taken_over(stage)
    _check_effects(stage, [["transactional", 2]])
    invariants.check(stage)


@scenarios.add(
    "kill-before-completion", "SIGKILL with the completion sent but not committed: the attempt is lost"
)
def before_completion(stage: Stage) -> None:
    proxy = stage.proxy()
    for task, effects in (("plain", [["plain", 1], ["plain", 2]]), ("transactional", [["transactional", 2]])):
        (job_id,) = stage.enqueue(task)
        trap = proxy.set_trap(points.END, at="request")
        doomed = stage.worker("A", via=proxy.target, wait=False)
        stage.until(f"the commit that ends the {task} job is held before the server", trap.caught.is_set)
        stage.check_value(
            "for others the job still runs",
            f"SELECT state FROM django_pgqueue_job WHERE id = {job_id}",
            "running",
        )
        _kill(stage, doomed)
        trap.drop()
        _taken_over(stage, job_id)
        _check_effects(stage, effects, job_id)
    invariants.check(stage)


@scenarios.add(
    "kill-after-completion", "SIGKILL after the completion's commit: done is done, and runs no more"
)
def after_completion(stage: Stage) -> None:
    proxy = stage.proxy()
    for task in ("plain", "transactional"):
        (job_id,) = stage.enqueue(task)
        trap = proxy.set_trap(points.END, at="reply")
        doomed = stage.worker("A", via=proxy.target, wait=False)
        stage.until(f"the {task} job's completion is committed and its reply held", trap.caught.is_set)
        _kill(stage, doomed)
        trap.drop()
        stage.until_state(job_id, "done", 1)
        _check_effects(stage, [[task, 1]], job_id)
    (last,) = stage.enqueue("plain")
    stage.worker("B")
    stage.until_state(last, "done", 1)
    stage.stop_workers()
    stage.check_value(
        "worker-B found nothing else to run",
        "SELECT count(*) FROM django_pgqueue_job WHERE generation > 1",
        0,
    )
    invariants.check(stage)


def _kill(stage: Stage, process: Process) -> None:
    process.kill()
    stage.record.event(f"SIGKILL to {process.name}")


def _taken_over(stage: Stage, job_id: int = 1) -> None:
    stage.worker("B")
    stage.until_state(job_id, "done", 2)
    stage.stop_workers()


def _check_effects(stage: Stage, expected: list[list[object]], job_id: int = 1) -> None:
    rows = stage.facts.run(
        f"SELECT kind, generation FROM lab_effects WHERE job_id = {job_id} ORDER BY generation"
    )
    stage.check(f"the effects, with their generations, are {expected}", rows == expected, rows)


def _check_lost_attempt(stage: Stage) -> None:
    rows = stage.facts.run("SELECT kind, generation FROM django_pgqueue_failure")
    stage.check("the lost attempt is on record", rows == [["lease_expired", 1]], rows)

"""A proxy between worker and server cuts, freezes and refuses: an uncertain commit is settled by reading the row."""

from __future__ import annotations

from datetime import timedelta

from .. import invariants, points
from ..scenario import Scenarios
from ..stage import Stage

scenarios = Scenarios("network")

# So long that nothing here can have waited for it.
LONG_LEASE = 120.0


@scenarios.add(
    "lost-claim-reply", "A claim's commit, its reply lost: its worker finds it without waiting for the lease"
)
def lost_claim_reply(stage: Stage) -> None:
    _cut_one_commit(stage, points.CLAIM, at="reply", task="plain")
    stage.until_state(1, "done", 2)
    rows = stage.facts.run("SELECT was, state, generation FROM lab_history WHERE job_id = 1 ORDER BY n")
    stage.check(
        "the claim was released by its own generation, then claimed anew",
        rows
        == [
            ["ready", "running", 1],
            ["running", "ready", 1],
            ["ready", "running", 2],
            ["running", "done", 2],
        ],
        rows,
    )
    stage.check_value("the attempt was given back", "SELECT attempts FROM django_pgqueue_job", 1)
    _finish(stage)


@scenarios.add("lost-claim", "A claim is cut off before its commit: it never was")
def lost_claim(stage: Stage) -> None:
    _cut_one_commit(stage, points.CLAIM, at="request", task="plain")
    stage.until_state(1, "done", 1)
    _finish(stage)


@scenarios.add(
    "lost-completion-reply", "A completion's commit, its reply lost: done by this generation is accepted"
)
def lost_completion_reply(stage: Stage) -> None:
    for task in ("plain", "fenced", "transactional"):
        job_id = _cut_one_commit(stage, points.END, at="reply", task=task)
        stage.until_state(job_id, "done", 1)
    _finish(stage)
    stage.check_value("none of them ran twice", "SELECT max(generation) FROM django_pgqueue_job", 1)


@scenarios.add(
    "lost-completion", "A completion is cut off before its commit: sent again, by the same generation"
)
def lost_completion(stage: Stage) -> None:
    _cut_one_commit(stage, points.END, at="request", task="plain")
    stage.until_state(1, "done", 1)
    job_id = _cut_one_commit(stage, points.END, at="request", task="transactional")
    stage.until_state(job_id, "done", 2)
    rows = stage.facts.run("SELECT kind, generation FROM lab_effects ORDER BY n")
    stage.check(
        "a transactional body that was rolled back ran again, and its effect is there once",
        rows == [["plain", 1], ["transactional", 2]],
        rows,
    )
    _finish(stage)


@scenarios.add(
    "partition", "A worker is cut off in the body, replaced, and comes back: its completion is refused"
)
def partition(stage: Stage) -> None:
    proxy = stage.proxy()
    stage.enqueue("plain", gate="go")
    stage.worker("A", via=proxy.target)
    stage.until_reached(1)
    proxy.freeze()
    stage.record.event("nothing passes between worker-A and the server; its connections stay open")
    stage.worker("B")
    stage.until_reached(1, 2)
    stage.open_gate("go")
    stage.until_state(1, "done", 2)
    proxy.thaw()
    stage.record.event("everything passes again")
    stage.until_row(
        "worker-A's completion is refused as superseded, and kept",
        "SELECT EXISTS (SELECT FROM django_pgqueue_rejection WHERE action = 'complete' AND verdict = 'superseded'"
        " AND worker LIKE 'worker-A-%%')",
        within=timedelta(seconds=40),
    )
    _finish(stage)


@scenarios.add(
    "refused", "The server refuses connections while a job runs: the worker waits, and completes it"
)
def refused(stage: Stage) -> None:
    proxy = stage.proxy()
    stage.enqueue("outside", gate="go")
    worker = stage.worker("A", via=proxy.target, lease=LONG_LEASE)
    stage.until_reached(1)
    proxy.refusing = True
    proxy.cut()
    stage.record.event("every connection is reset, and new ones are refused")
    stage.open_gate("go")
    worker.wait_for_output("does not answer")
    proxy.refusing = False
    stage.record.event("connections are accepted again")
    stage.until_state(1, "done", 1)
    stage.check_value("its result was kept", "SELECT result::text FROM django_pgqueue_job", '"finished"')
    _finish(stage)


def _cut_one_commit(stage: Stage, marker: str, *, at: str, task: str) -> int:
    (job_id,) = stage.enqueue(task)
    proxy = stage.proxy()
    trap = proxy.set_trap(marker, at=at)
    worker = stage.worker("A", via=proxy.target, lease=LONG_LEASE, wait=False)
    where = "before the server has seen it" if at == "request" else "after the server has committed it"
    stage.until(f"a commit of the {task} job is held {where}", trap.caught.is_set)
    trap.drop()
    stage.record.event("its connection is cut there")
    stage.until_state(job_id, "done")
    worker.stop()
    code = worker.wait()
    stage.check("worker-A stopped gracefully", code == 0, code)
    return job_id


def _finish(stage: Stage) -> None:
    stage.stop_workers()
    invariants.check(stage)

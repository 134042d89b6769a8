"""The four ways a job can write, without faults and with a crash between an effect and its record."""

from __future__ import annotations

from ... import outcomes
from .. import invariants, points
from ..scenario import Scenarios
from ..stage import Stage
from ..target import ALIAS

scenarios = Scenarios("exactly-once")


@scenarios.add(
    "effects", "fence(), complete(), transactional tasks and retries: each database effect exactly once"
)
def effects(stage: Stage) -> None:
    stage.enqueue("fenced", 20)
    stage.enqueue("transactional", 20)
    stage.enqueue("flaky", 10, failures=2)
    for letter in "AB":
        stage.worker(letter, concurrency=4)
    stage.until_all_ended()
    stage.stop_workers()
    rows = stage.facts.run("SELECT kind, count(*) FROM lab_effects GROUP BY kind ORDER BY kind")
    expected = [["completing", 20], ["fenced", 20], ["plain", 10], ["transactional", 20]]
    stage.check("each job had each of its effects once", rows == expected, rows)
    stage.check_value("20 failures are on record", "SELECT count(*) FROM django_pgqueue_failure", 20)
    stage.check_value(
        "the result given to complete() was kept",
        "SELECT count(*) FROM django_pgqueue_job WHERE task LIKE '%.fenced' AND result::text = '1'",
        20,
    )
    invariants.check(stage)


@scenarios.add("saved-effect", "once(): a failure after the mail runs the job again, but does not send again")
def saved_effect(stage: Stage) -> None:
    stage.enqueue("mail", fail_first=True)
    stage.worker("A")
    stage.until_state(1, "done", 2)
    stage.stop_workers()
    rows = stage.facts.run("SELECT count(*), sum(sent) FROM lab_mails")
    stage.check("two attempts, one mail", rows == [[1, "1"]] or rows == [[1, 1]], rows)
    stage.check_value(
        "the second attempt got the saved reply", "SELECT result::text FROM django_pgqueue_job", '"accepted"'
    )
    invariants.check(stage)


@scenarios.add(
    "cancel-running", "A running job is cancelled: its worker is told, and the job ends as cancelled"
)
def cancel_running(stage: Stage) -> None:
    stage.enqueue("polite")
    stage.worker("A")
    stage.until_reached(1)
    reply = outcomes.cancel(1, using=ALIAS)
    stage.record.call("outcomes.cancel(1)", reply.message)
    stage.check("the owner is asked", reply.message == "cancellation requested", reply.message)
    stage.until_state(1, "cancelled", 1)
    rows = stage.facts.run("SELECT kind, generation FROM django_pgqueue_failure")
    stage.check("the attempt is on record as cancelled", rows == [["cancelled", 1]], rows)
    stage.stop_workers()
    invariants.check(stage)


@scenarios.add(
    "crash-before-the-record", "A crash between the mail and its record: sent again, and only the key helps"
)
def crash_before_the_record(stage: Stage) -> None:
    proxy = stage.proxy()
    for keyed, mails in ((True, 1), (False, 2)):
        stage.facts.quietly("TRUNCATE lab_mails")
        (job_id,) = stage.enqueue("mail", keyed=keyed)
        trap = proxy.set_trap(points.EFFECT, at="request")
        doomed = stage.worker("A", via=proxy.target, wait=False)
        stage.until(
            "the mail is sent, and the commit of its record held before the server", trap.caught.is_set
        )
        doomed.kill()
        trap.drop()
        stage.record.event("SIGKILL to worker-A")
        stage.worker("B")
        stage.until_state(job_id, "done", 2)
        stage.stop_workers()
        rows = stage.facts.run("SELECT count(*), sum(sent)::int FROM lab_mails")
        how = (
            "with the job's key, the receiver drops the second"
            if keyed
            else "without a key, both mails go out"
        )
        stage.check(f"two requests: {how}", rows == [[mails, 2]], rows)
    invariants.check(stage)

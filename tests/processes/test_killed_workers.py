"""A worker is killed with -9 in the middle of a job."""

import time

import pytest

from django_pgqueue.compat import task_backends
from tests.processes import tasks
from tests.processes.stage import LEASE, Stage, Worker, is_alive

RECOVERED_WITHIN = LEASE + 5


def start_and_kill(stage: Stage, job: int, *flags: str, name: str | None = None) -> Worker:
    """Return a worker that was killed in the middle of the job."""
    worker = stage.worker(*flags, name=name, wait=False)
    stage.wait_note("started", job)
    worker.kill()
    return worker


def test_a_job_runs_again_although_every_trace_of_its_worker_is_gone(stage: Stage) -> None:
    """Reports 1, 10 and 22."""
    job = stage.enqueue("hold_first", "never")
    killed = stage.worker(wait=False)
    stage.wait_note("started", job)
    second = stage.worker()

    killed.kill()
    killed_at = time.monotonic()
    stage.sql("DELETE FROM django_pgqueue_worker")
    restarted = stage.wait_note("started", job, count=2)

    assert restarted["at"] - killed_at < RECOVERED_WITHIN
    assert stage.wait_state(job, "done")["worker_ids"] == [killed.id, second.id]
    assert stage.brief(job) == ("done", 2, 2)
    assert stage.failures(job) == [(1, "lease_expired", "")]
    assert not is_alive(killed.pid)


def test_a_new_process_under_the_same_worker_id_does_not_keep_the_orphan_alive(stage: Stage) -> None:
    """Report 2."""
    job = stage.enqueue("hold_first", "never")
    killed = start_and_kill(stage, job, name="same")
    again = stage.worker(name="same")

    assert stage.wait_state(job, "done", RECOVERED_WITHIN)["worker_ids"] == [killed.id, again.id]
    assert killed.id != again.id
    assert killed.id.startswith("same-") and again.id.startswith("same-")


def test_as_many_orphans_as_slots_do_not_stop_a_new_worker(stage: Stage) -> None:
    """Reports 3 and 13."""
    orphans = [stage.enqueue("hold_first", "never") for _ in range(2)]
    killed = stage.worker("--concurrency", "2", wait=False)
    for job in orphans:
        stage.wait_note("started", job)
    killed.kill()
    fresh = stage.enqueue("noop")

    stage.worker("--concurrency", "2")

    stage.wait_state(fresh, "done", seconds=LEASE)  # at once: the orphans take no slot
    for job in orphans:
        stage.wait_state(job, "done", RECOVERED_WITHIN)
        assert stage.brief(job) == ("done", 2, 2)
    assert stage.count("django_pgqueue_job", "state = 'running'") == 0  # no phantom is left


def test_recovery_does_not_depend_on_a_worker_that_died_while_recovering(stage: Stage) -> None:
    """Report 6."""
    job = stage.enqueue("hold_first", "never")
    start_and_kill(stage, job)
    stage.wait(lambda: stage.count("django_pgqueue_job", "lease_until < now()") == 1, "the lease has expired")
    code = """
import threading
from django.db import transaction
from django_pgqueue.leases import reclaim
with transaction.atomic():
    print(len(reclaim(worker="dies")), flush=True)
    threading.Event().wait(60)
"""
    with stage.child("shell", "-v0", "-c", code) as recovering:
        assert recovering.stdout and recovering.stdout.readline() == b"1\n"

    stage.worker()
    stage.wait_state(job, "done", RECOVERED_WITHIN)
    assert stage.brief(job) == ("done", 2, 2)


@pytest.mark.parametrize("attempts", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_job_that_takes_its_worker_down_is_failed_after_its_last_attempt(
    stage: Stage, attempts: int
) -> None:
    """Reports 8, 12 and 41."""
    unique = tasks.kill_own_process.using(unique_key="one", max_attempts=attempts)
    job = int(unique.enqueue().id)
    other = stage.enqueue("mark", priority=-1)

    for number in range(1, attempts + 1):
        worker = stage.worker("--concurrency", "1", wait=False)
        assert worker.wait() == -9
        assert len(stage.notes("started", job)) == number
        assert unique.enqueue().id == str(job)  # the key is held until the job has ended
    stage.worker("--concurrency", "1", "--queue-name", "default")

    stage.wait_state(other, "done")
    stage.wait_state(job, "failed", RECOVERED_WITHIN)
    assert stage.brief(job) == ("failed", attempts, attempts)
    assert stage.failures(job) == [(number, "lease_expired", "") for number in range(1, attempts + 1)]
    signal = stage.wait_note("job_failed", job)
    assert (signal["facts"]["generation"], signal["facts"]["kind"]) == (attempts, "lease_expired")
    result = task_backends["default"].get_result(str(job))
    assert result.status == "FAILED"
    assert len(result.errors) == attempts
    assert unique.using(queue_name="reports").enqueue().id != str(job)  # the key is free
    assert len(stage.notes("started", job)) == attempts
    assert len(stage.notes("job_failed", job)) == 1


def test_the_key_of_an_orphan_leads_to_the_orphan_and_is_free_once_it_is_done(stage: Stage) -> None:
    """Report 12."""
    unique = tasks.hold_first.using(unique_key="one")
    job = int(unique.enqueue("never").id)
    start_and_kill(stage, job)

    assert unique.enqueue("never").id == str(job)
    stage.worker("--queue-name", "default")
    stage.wait_state(job, "done", RECOVERED_WITHIN)
    assert unique.using(queue_name="reports").enqueue("never").id != str(job)

"""Uncertain commits: what a worker makes of a claim or an ending whose reply it never got."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from django_pgqueue import leases
from django_pgqueue.lab.points import CLAIM, END
from django_pgqueue.lab.proxy import Proxy, Trap
from django_pgqueue.lab.target import Target
from tests.processes.stage import Stage, Worker

# Far more than a test takes: nothing here is recovered by waiting for a lease.
LONG = ("--lease", "60")


@pytest.fixture
def proxy(stage: Stage) -> Iterator[Proxy]:
    with psycopg.connect(stage.url) as session:
        parameters = session.info.get_parameters()
    with Proxy(Target(params=parameters)) as between:
        yield between


def worker_behind(stage: Stage, proxy: Proxy, *flags: str) -> Worker:
    """Start a worker that reaches the database only through the proxy."""
    url = urlsplit(stage.url)
    user = url.username or parse_qs(url.query).get("user", ["postgres"])[0]
    password = f":{url.password}" if url.password else ""
    name = url.path.rpartition("/")[2]
    port = proxy.target.params["port"]
    through = f"postgres://{user}{password}@127.0.0.1:{port}/{name}?sslmode=disable&gssencmode=disable"
    return stage.worker(*LONG, *flags, env={"DATABASE_URL": through})


def caught(trap: Trap) -> None:
    assert trap.caught.wait(20), "the trap has caught nothing"


def settled(stage: Stage, worker: Worker) -> None:
    """Wait until the worker says that it holds nothing."""
    stage.wait(
        lambda: stage.count("django_pgqueue_worker", "id = %s AND running = 0", worker.id) == 1,
        "it holds nothing",
    )


# Claims


def test_a_claim_whose_reply_was_lost_is_found_and_run_without_waiting_for_the_lease(
    stage: Stage, proxy: Proxy
) -> None:
    """Ten jobs were claimed at once; a job that the worker really holds is left alone."""
    worker = worker_behind(stage, proxy, "--concurrency", "12", "--interval", "0.3")
    held = stage.enqueue("hold", "end")
    stage.wait_note("started", held)
    trap = proxy.set_trap(CLAIM, at="reply")
    stage.enqueue_many("mark", 10)
    caught(trap)
    assert stage.states() == {"running": 11}  # committed, and the worker does not know
    assert stage.notes("ran") == []
    trap.drop()

    stage.wait_all_done(10, seconds=20)
    assert stage.brief(held) == ("running", 1, 1)
    rows = stage.sql("SELECT generation, attempts, worker_ids FROM django_pgqueue_job WHERE state = 'done'")
    # Given back at the old generation, with the attempt, and claimed again in the usual way: no invented token.
    assert {(row["generation"], row["attempts"]) for row in rows} == {(2, 1)}
    assert {worker_id for row in rows for worker_id in row["worker_ids"]} == {worker.id}
    assert len(stage.notes("ran")) == 10
    assert worker.output.count("its claim had gone through") == 10
    stage.open("end")
    stage.wait_state(held, "done")
    assert stage.brief(held) == ("done", 1, 1)
    assert stage.count("django_pgqueue_failure") == stage.count("django_pgqueue_rejection") == 0


def test_a_claim_that_was_rolled_back_is_not_mistaken_for_another_workers_of_the_same_number(
    stage: Stage, proxy: Proxy
) -> None:
    first = worker_behind(stage, proxy)
    trap = proxy.set_trap(CLAIM, at="request")
    job = stage.enqueue("hold", "end")
    caught(trap)
    proxy.refusing = True
    trap.drop()
    second = stage.worker(*LONG)
    stage.wait_note("started", job)
    assert stage.brief(job) == ("running", 1, 1)  # generation 1, as the first worker's would have been
    proxy.refusing = False
    first.wait_for(lambda: "The database is back" in first.output, what="it has connected again")
    later = stage.enqueue("noop", queue="later")
    stage.wait_state(later, "done")

    assert "its claim had gone through" not in first.output
    assert (stage.brief(job), stage.job(job)["worker_ids"]) == (("running", 1, 1), [second.id])
    stage.open("end")
    stage.wait_state(job, "done")
    assert stage.brief(job) == ("done", 1, 1)
    assert stage.count("django_pgqueue_rejection") == 0


# Endings, in a worker


ENDINGS = {
    "completion": ("mark", {}, ("done", 1, 1), 0),
    "last failure": ("tests.worker.tasks.fail", {"max_attempts": 1}, ("failed", 1, 1), 1),
    "failure, tried again at once": ("tests.worker.tasks.fail_first", {}, ("done", 2, 2), 1),
    "release": ("tests.worker.tasks.snooze_first", {}, ("done", 2, 1), 0),
}


@pytest.mark.parametrize("at", ["reply", "request"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_an_ending_on_a_line_that_breaks_happens_once_under_its_own_generation_and_is_no_rejection(
    ending: str, at: str, stage: Stage, proxy: Proxy
) -> None:
    """Reply lost: already accepted. Request lost: still running, so sent again with the same generation."""
    task, columns, expected, failures = ENDINGS[ending]
    worker = worker_behind(stage, proxy)
    trap = proxy.set_trap(END, at=at)
    job = stage.enqueue(task, **columns)
    caught(trap)
    before = stage.job(job)
    # An exchange both ends and claims: a job that is ready again may be in its next generation with the same commit.
    claimed_too = before["generation"] == 2
    assert at == "reply" or not claimed_too
    assert (before["state"] == "running") == (at == "request" or claimed_too)
    trap.drop()

    stage.wait_state(job, expected[0])
    settled(stage, worker)
    state, generation, attempts = expected
    generation += claimed_too  # that claim is found, given back, and made again
    assert stage.brief(job) == (state, generation, attempts)
    assert len(stage.failures(job)) == failures
    assert stage.rejections(job) == []
    assert stage.job(job)["worker_ids"] == [worker.id] * generation
    worker.stop()
    assert worker.wait() == 0


@pytest.mark.parametrize("at", ["reply", "request"])
def test_the_release_of_a_worker_that_stops_is_settled_before_it_leaves(
    at: str, stage: Stage, proxy: Proxy
) -> None:
    worker = worker_behind(stage, proxy, "--shutdown-timeout", "0.5")
    job = stage.enqueue("hold", "never")
    stage.wait_note("started", job)
    trap = proxy.set_trap(END, at=at)
    worker.stop()
    caught(trap)
    trap.drop()
    code = worker.wait()
    # With the database away, what cannot be written by the end of the timeout is left to the lease.
    left = ("ready", 1, 0) if at == "reply" else stage.brief(job)
    assert (code, stage.brief(job)) == (0, left)
    assert left in {("ready", 1, 0), ("running", 1, 1)}
    assert stage.count("django_pgqueue_rejection") == 0


def test_a_completion_that_was_lost_on_the_way_is_refused_if_the_job_has_moved_on_meanwhile(
    stage: Stage, proxy: Proxy
) -> None:
    worker = worker_behind(stage, proxy)
    trap = proxy.set_trap(END, at="request")
    job = stage.enqueue("mark")
    caught(trap)
    proxy.refusing = True
    trap.drop()
    stage.wait(
        lambda: taken_over(stage, job), "the server has rolled back, and another worker reclaims the job"
    )
    proxy.refusing = False

    stage.wait(lambda: stage.count("django_pgqueue_rejection", "action = 'complete'") == 1, "it was refused")
    assert (1, 2, "complete", "superseded") in stage.rejections(job)
    assert stage.brief(job) == ("running", 2, 2)
    settled(stage, worker)


def taken_over(stage: Stage, job: int) -> bool:
    with stage.connect() as session:
        session.execute(
            "UPDATE django_pgqueue_job SET lease_until = clock_timestamp() - interval '1 s' WHERE id ="
            " (SELECT id FROM django_pgqueue_job WHERE id = %s FOR UPDATE SKIP LOCKED)",
            [job],
        )
    return bool(leases.reclaim(worker="another", lease=timedelta(minutes=1)))

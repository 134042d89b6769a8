"""Signals, exit codes, draining and --batch."""

import os
import random
import signal
import threading
import time
from dataclasses import dataclass, field

import pytest

from tests.processes import tasks
from tests.processes.stage import Stage, Worker

TERM, INT, KILL = signal.SIGTERM, signal.SIGINT, signal.SIGKILL


# Rounds of the race between a signal and a claim; 300 take a minute or two.
FEW, MANY = 10, int(os.environ.get("PROCESS_ROUNDS", "30"))


@dataclass
class Case:
    """A worker on a queue of its own, what it does when the signals come, and how it shall end."""

    signals: tuple[signal.Signals, ...]
    busy: str  # "idle", "short" (the job ends while draining), "long" (it outlasts --shutdown-timeout 1), "async"
    code: int
    row: tuple[str, int, int] | None = None  # state, generation, attempts
    delay: tuple[float, float] = (0, 1.5)  # seconds from the last signal, or from the end of a short job
    worker: Worker = field(init=False)
    job: int = field(init=False)

    def __str__(self) -> str:
        return f"{'+'.join(item.name for item in self.signals)} {self.busy}"


CASES = [
    Case((TERM,), "idle", 0),
    Case((INT,), "idle", 0),
    Case((KILL,), "idle", -9),
    Case((TERM,), "short", 0, ("done", 1, 1)),
    Case((INT,), "short", 0, ("done", 1, 1)),
    Case((KILL,), "short", -9, ("running", 1, 1)),
    Case((TERM,), "long", 0, ("ready", 1, 0), (0.9, 3)),
    Case((INT,), "long", 0, ("ready", 1, 0), (0.9, 3)),
    Case((TERM,), "async", 0, ("ready", 1, 0), (0.9, 3)),
    Case((KILL,), "long", -9, ("running", 1, 1)),
    Case((TERM, TERM), "long", 128 + 15, ("running", 1, 1)),
    Case((INT, INT), "long", 128 + 2, ("running", 1, 1)),
    Case((TERM, INT), "long", 128 + 2, ("running", 1, 1)),
]


def test_what_each_signal_does_to_the_worker_and_its_job(stage: Stage) -> None:
    """Reports 4, 7, 51 and 52."""
    for number, case in enumerate(CASES):
        case.job = 0
        if case.busy != "idle":
            task = "ahold" if case.busy == "async" else "hold"
            case.job = stage.enqueue(task, f"{case.busy}{number}", queue=f"q{number}")
        # A second signal needs a drain that it can cut short.
        timeout = "60" if len(case.signals) > 1 or case.busy == "short" else "1"
        flags = ("--queue-name", f"q{number}", "--shutdown-timeout", timeout, "--lease", "30")
        case.worker = stage.worker(*flags, wait=False)
    stage.wait_working(*[case.worker for case in CASES])
    wrong = [problem for number, case in enumerate(CASES) for problem in play(stage, number, case)]
    assert wrong == []


def play(stage: Stage, number: int, case: Case) -> list[str]:
    """Send the signals, and say what was not as expected."""
    if case.job:
        stage.wait_note("started", case.job)
    for position, item in enumerate(case.signals):
        if position:
            case.worker.wait_for(lambda: "Stopping" in case.worker.output, what="the first signal was heard")
        case.worker.send(item)
    if case.busy == "short":
        if case.signals != (KILL,):
            case.worker.wait_for(lambda: "Stopping" in case.worker.output, what="it is draining")
        stage.open(f"short{number}")
    since = time.monotonic()
    code = case.worker.wait()
    delay = time.monotonic() - since
    problems = []
    if code != case.code:
        problems.append(f"{case}: exit code {code}, not {case.code}\n{case.worker.output}")
    if case.row and stage.brief(case.job) != case.row:
        problems.append(f"{case}: {stage.brief(case.job)}, not {case.row}")
    if not case.delay[0] <= delay <= case.delay[1]:
        problems.append(f"{case}: it took {delay:.1f} s")
    left = stage.count("django_pgqueue_worker", "id = %s", case.worker.id)
    if left != (case.code != 0):
        problems.append(f"{case}: {left} rows of the worker are left")
    return problems


def test_a_released_job_is_taken_by_the_next_worker_at_once_and_loses_no_attempt(stage: Stage) -> None:
    """Report 51."""
    job = stage.enqueue("hold", "end")
    first = stage.worker("--shutdown-timeout", "0", "--lease", "60", wait=False)
    stage.wait_note("started", job)
    first.stop()
    assert first.wait() == 0

    second = stage.worker("--lease", "60")
    assert stage.wait_note("started", job, count=2)["attempt"] == 1
    stage.open("end")
    assert stage.wait_state(job, "done")["worker_ids"] == [first.id, second.id]
    assert stage.brief(job) == ("done", 2, 1)
    assert stage.failures(job) == []


def test_a_job_can_see_that_its_worker_is_stopping(stage: Stage) -> None:
    """Report 53."""
    job = stage.enqueue("tidy_up_when_stopping")
    worker = stage.worker(wait=False)
    stage.wait_note("started", job)
    worker.stop()
    assert worker.wait() == 0
    assert stage.job(job)["result"] == "tidied up"


def test_a_drain_claims_nothing_more(stage: Stage) -> None:
    """Report 52."""
    first = stage.enqueue("hold", "end")
    worker = stage.worker("--concurrency", "2", wait=False)
    stage.wait_note("started", first)
    worker.stop()
    worker.wait_for(lambda: "Stopping" in worker.output)
    later = stage.enqueue("noop")
    stage.stays(lambda: stage.brief(later) == ("ready", 0, 0), 0.5, "it is not claimed")
    stage.open("end")
    assert worker.wait() == 0
    assert stage.brief(first) == ("done", 1, 1)
    assert stage.brief(later) == ("ready", 0, 0)


@pytest.mark.timeout(120 + 2 * MANY)
@pytest.mark.parametrize(
    "rounds", [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.slow)]
)
def test_a_signal_around_a_claim_strands_nothing(stage: Stage, rounds: int) -> None:
    """SIGTERM comes at a random moment up to 60 ms after an enqueue; PROCESS_ROUNDS=300 for more of it.

    Report 50.
    """
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    with stage.forks() as forks:
        for number in range(rounds):
            name = f"round{number}"
            pid = forks.start(name, "--lease", "60", "--interval", "0.02", "--worker-id", name)
            stage.wait(
                lambda name=name: stage.count("django_pgqueue_worker", "id LIKE %s", f"{name}-%") == 1,
                "it works",
            )
            job = stage.enqueue("noop")
            threading.Event().wait(chance.uniform(0, 0.06))
            os.kill(pid, TERM)

            assert forks.wait(pid) == 0, f"seed {seed}\n{stage.logs()}"
            row = stage.brief(job)
            assert row in {("done", 1, 1), ("ready", 0, 0), ("ready", 1, 0)}, (
                f"seed {seed}: {row}\n{stage.logs()}"
            )
            assert stage.job(job)["lease_until"] is None
            stage.sql("DELETE FROM django_pgqueue_job")


def test_batch_runs_what_is_due_and_exits(stage: Stage) -> None:
    """Report 55."""
    three = [stage.enqueue("noop", queue="three") for _ in range(3)]
    future = [
        int(tasks.noop.using(queue_name="reports", run_after=tasks.timedelta(hours=1)).enqueue().id)
        for _ in range(2)
    ]
    stage.enqueue("enqueue_more", 3, queue="chain")
    failing = stage.enqueue("leave_with", "exit", queue="failing", max_attempts=1)
    workers = {
        queue: stage.worker("--batch", "--queue-name", queue, wait=False)
        for queue in ("none", "three", "reports", "chain", "failing")
    }

    assert {queue: worker.wait() for queue, worker in workers.items()} == dict.fromkeys(workers, 0)
    assert {stage.brief(job) for job in three} == {("done", 1, 1)}
    assert {stage.brief(job) for job in future} == {("scheduled", 0, 0)}
    assert stage.count("django_pgqueue_job", "queue = 'chain' AND state = 'done'") == 4
    assert stage.brief(failing) == ("failed", 1, 1)


def test_batch_takes_up_jobs_that_are_due_and_not_yet_promoted(stage: Stage) -> None:
    """Report 55."""
    job = stage.enqueue("noop", state="scheduled")
    assert stage.worker("--batch", wait=False).wait() == 0
    assert stage.brief(job) == ("done", 1, 1)


def test_max_tasks_is_exact(stage: Stage) -> None:
    """Report 159."""
    stage.enqueue_many("noop", 7)
    assert stage.worker("--max-tasks", "5", wait=False).wait() == 0
    assert stage.states() == {"done": 5, "ready": 2}

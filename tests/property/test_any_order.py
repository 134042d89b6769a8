"""Several sessions do what workers and operators do, in any order; a small model says what must come of it.

More of it: PROPERTY_EXAMPLES=2000 PROPERTY_STEPS=80 and `-m slow`; then it starts from chance, and shrinks what fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from django_pgqueue import leases, outcomes, upkeep
from django_pgqueue.audit import audit
from django_pgqueue.enqueueing import Request, enqueue
from django_pgqueue.lease import Lease
from django_pgqueue.models import Failure, Rejection
from django_pgqueue.models import Job as Row
from django_pgqueue.states import Action, Kind
from django_pgqueue.upkeep import Prune, promote
from tests.property.model import ENDED, Job, claimable
from tests.property.sessions import Session
from tests.tables import TABLES

CLEAN = "; ".join(f"DELETE FROM {table}" for table in TABLES if table.startswith("django_pgqueue"))
FEW, MANY = 8, int(os.environ.get("PROPERTY_EXAMPLES", "36"))
STEPS = int(os.environ.get("PROPERTY_STEPS", "60"))
HOUR = timedelta(hours=1)

sessions = st.integers(0, 2)
picks = st.integers(0, 1000)
limits = st.integers(1, 3)
REJECTED = ("superseded", "expired", "not_running", "missing")


HOW = st.sampled_from(
    [
        "complete",
        "fail",
        "fail_later",
        "fail_now",
        "fail_now",
        "release",
        "release",
        "snooze",
        "confirm_cancel",
    ]
)


def some(*states: str, **facts: object) -> Any:
    """Return a precondition: there is a job in one of these states of which these facts hold."""

    def holds(machine: AnyOrder) -> bool:
        return any(
            job.state in states and all(getattr(job, name) == value for name, value in facts.items())
            for job in machine.jobs.values()
        )

    return precondition(holds)


class Sessions:
    """The three sessions, which outlive the single examples."""

    def __init__(self) -> None:
        self.all = [Session(name) for name in "ABC"]

    def close(self) -> None:
        for session in self.all:
            session.close()


class AnyOrder(RuleBasedStateMachine):
    """Each rule does one thing on the server and the same in the model, and compares the replies."""

    pool: Sessions

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[int, Job] = {}
        self.leases: list[Lease] = []
        self.rejections: list[tuple[int, int, str, str]] = []
        self.gone: list[int] = []
        # One session may stand in a transaction that holds the row of this job.
        self.holder: Session | None = None
        self.locked: int | None = None
        self.upon_commit: Callable[[Job], None] = lambda job: None
        self.on(0, lambda: connection.cursor().execute(CLEAN))

    def teardown(self) -> None:
        if self.holder is not None:
            self.holder.do(rolled_back)

    # tools

    def free(self, number: int) -> Session:
        """Return the session of this number, or the next one if that one stands in a transaction."""
        session = self.pool.all[number]
        return session if session is not self.holder else self.pool.all[(number + 1) % 3]

    def on(self, number: int, work: Callable[[], Any]) -> Any:
        return self.free(number).do(work)

    def pick_lease(self, pick: int) -> tuple[Lease, Job | None]:
        lease = self.leases[-1 - pick % min(len(self.leases), 8)]  # rather one of the latest
        return lease, self.jobs.get(lease.job_id)

    def pick_job(self, pick: int, *states: str) -> Job | None:
        """Return one of the jobs in these states whose row nobody has locked."""
        found = [job for job in self.jobs.values() if job.state in states and job.id != self.locked]
        return found[pick % len(found)] if found else None

    def is_taken(self, key: str | None, but: int | None = None) -> bool:
        return any(job.is_live and job.unique_key == key and job.id != but for job in self.jobs.values())

    def waits_for_lock(self, key: str | None) -> bool:
        """Whether the unique index would make this key wait for the open transaction."""
        return key is not None and self.locked is not None and self.jobs[self.locked].unique_key == key

    def expect(self, lease: Lease, job: Job | None, action: str, *, strict: bool) -> str:
        """Return the verdict that is due, and expect its record."""
        verdict = job.verdict(lease.generation, action, strict=strict) if job else "missing"
        if verdict in REJECTED:
            self.rejections.append((lease.job_id, lease.generation, action, verdict))
        return verdict

    # jobs in

    @initialize(
        first=st.lists(
            st.tuples(st.sampled_from("ab"), st.integers(-1, 1), st.integers(1, 3)), min_size=2, max_size=4
        )
    )
    def begin_with_some(self, first: list[tuple[str, int, int]]) -> None:
        for queue, priority, most in first:
            self.enqueue_one(0, queue, priority, most, later=False, key=None)

    @rule(
        number=sessions,
        queue=st.sampled_from("ab"),
        priority=st.integers(-1, 1),
        most=st.integers(1, 3),
        later=st.booleans(),
        key=st.sampled_from([None, None, None, "k", "l"]),
    )
    def enqueue(
        self, number: int, queue: str, priority: int, most: int, later: bool, key: str | None
    ) -> None:
        self.enqueue_one(number, queue, priority, most, later=later, key=key)

    def enqueue_one(
        self, number: int, queue: str, priority: int, most: int, *, later: bool, key: str | None
    ) -> None:
        if self.waits_for_lock(key):
            return
        request = Request(
            task="shop.tasks.nothing",
            payload='{"args": [], "kwargs": {}}',
            queue=queue,
            priority=priority,
            max_attempts=most,
            backend="default",
            delay=HOUR if later else None,
            unique_key=key,
        )
        new = self.on(number, lambda: enqueue(request, hint=False))
        taken = key is not None and self.is_taken(key)
        assert new.existing is taken
        if taken:
            assert self.jobs[new.job_id].unique_key == key
            assert self.jobs[new.job_id].state == new.state
            return
        assert new.job_id not in self.jobs
        self.jobs[new.job_id] = Job(new.job_id, queue, priority, most, key, new.state)
        assert new.state == ("scheduled" if later else "ready")

    @some("scheduled", due=False)
    @rule(number=sessions, pick=picks)
    def time_comes(self, number: int, pick: int) -> None:
        job = self.pick_job(pick, "scheduled")
        if job is not None:
            change = {"run_after": timedelta_ago()}
            self.on(number, lambda: Row.objects.filter(pk=job.id).update(**change))
            job.due = True

    @some("scheduled")
    @rule(number=sessions, limit=limits)
    def promote(self, number: int, limit: int) -> None:
        due = sorted(job.id for job in self.jobs.values() if job.state == "scheduled" and job.due)
        count = self.on(number, lambda: promote(limit=limit))
        assert count == min(len(due), limit)
        became = self.on(
            number, lambda: set(Row.objects.ready().filter(pk__in=due).values_list("pk", flat=True))
        )
        assert len(became) == count
        for job_id in became:
            self.jobs[job_id].state, self.jobs[job_id].due = "ready", False

    # claims

    @some("ready")
    @rule(number=sessions, limit=limits)
    def claim(self, number: int, limit: int) -> None:
        session = self.free(number)
        expected = claimable(list(self.jobs.values()), limit)
        got = session.do(lambda: leases.claim(worker=session.name, limit=limit, lease=HOUR))
        assert [lease.job_id for lease in got] == [
            job.id for job in sorted(expected, key=lambda job: (-job.priority, job.id))
        ]
        self.take(got, session.name, Job.claim)

    @some("running", expired=True)
    @rule(number=sessions, limit=limits, holds=st.booleans())
    def reclaim(self, number: int, limit: int, holds: bool) -> None:
        """With `holds`, the session leaves alone what it has claimed itself, as a worker does."""
        session = self.free(number)
        held = [lease.key for lease in self.leases if holds and lease.worker == session.name]
        expected = [
            job.id
            for job in sorted(self.jobs.values(), key=lambda job: job.id)
            if job.is_lost
            and not job.is_spent
            and not job.cancel_requested
            and job.id != self.locked
            and (job.id, job.generation) not in held
        ][:limit]
        got = session.do(lambda: leases.reclaim(worker=session.name, held=held, limit=limit, lease=HOUR))
        assert [lease.job_id for lease in got] == expected
        self.take(got, session.name, Job.reclaim)

    def take(self, got: list[Lease], worker: str, how: Callable[[Job, str], None]) -> None:
        for lease in got:
            job = self.jobs[lease.job_id]
            before = job.generation
            how(job, worker)
            assert lease.key == (job.id, before + 1)
            assert (lease.attempt, lease.max_attempts) == (job.attempts, job.max_attempts)
            assert lease.worker_ids == job.workers
            self.leases.append(lease)

    @some("running", expired=False)
    @rule(number=sessions, pick=picks)
    def lease_runs_out(self, number: int, pick: int) -> None:
        job = self.pick_job(pick, "running")
        if job is not None:
            change = {"lease_until": timedelta_ago()}
            self.on(number, lambda: Row.objects.filter(pk=job.id).update(**change))
            job.expired = True

    @some("running", expired=True)
    @rule(number=sessions, limit=limits)
    def exhaust(self, number: int, limit: int) -> None:
        expected = [
            job
            for job in sorted(self.jobs.values(), key=lambda job: job.id)
            if job.is_lost and (job.is_spent or job.cancel_requested) and job.id != self.locked
        ][:limit]
        spent = self.on(number, lambda: upkeep.exhaust(limit=limit))
        assert sorted(item.job_id for item in spent) == [job.id for job in expected]
        for job in expected:
            job.exhaust()
        assert {item.job_id: item.state for item in spent} == {job.id: job.state for job in expected}

    # fenced writes, of owners and of those that no longer are

    @precondition(lambda self: self.leases)
    @rule(number=sessions, picked=st.lists(picks, min_size=1, max_size=4), strict=st.booleans())
    def renew(self, number: int, picked: list[int], strict: bool) -> None:
        chosen = {item.key: (item, job) for item, job in map(self.pick_lease, picked)}
        expected: dict[str, set[tuple[int, int]]] = {"renewed": set(), "busy": set(), "cancel": set()}
        lost = {}
        for key, (lease, job) in chosen.items():
            # A locked row that is still this generation's is neither renewed nor lost.
            mine = job is not None and job.state == "running" and job.generation == lease.generation
            if mine and lease.job_id == self.locked:
                if strict and job.expired:
                    lost[key] = self.expect(lease, job, "renew", strict=strict)
                else:
                    expected["busy"].add(key)
                continue
            verdict = self.expect(lease, job, "renew", strict=strict)
            if verdict == "accepted":
                expected["renewed"].add(key)
                job.expired = False
                if job.cancel_requested:
                    expected["cancel"].add(key)
            else:
                lost[key] = verdict
        asked = [fenced(lease, strict) for lease, _ in chosen.values()]
        reply = self.on(number, lambda: leases.renew(asked))
        assert (reply.renewed, reply.busy, reply.cancel_requested) == tuple(expected.values())
        assert {(item.job_id, item.generation): str(item.verdict) for item in reply.lost} == lost

    @precondition(lambda self: self.leases)
    @rule(number=sessions, pick=picks, how=HOW, strict=st.booleans())
    def end_one(self, number: int, pick: int, how: str, strict: bool) -> None:
        self.end(number, pick, how, strict, batched=False)

    @precondition(lambda self: self.leases)
    @rule(number=sessions, pick=picks, how=HOW, strict=st.booleans())
    def end_in_a_batch(self, number: int, pick: int, how: str, strict: bool) -> None:
        self.end(number, pick, how, strict, batched=True)

    def end(self, number: int, pick: int, how: str, strict: bool, *, batched: bool) -> None:
        """One by one, or as a worker's loop does, which does not wait for a row."""
        lease, job = self.pick_lease(pick)
        locked = lease.job_id == self.locked
        if locked and not batched:
            return  # it would wait
        ending = ending_of(fenced(lease, strict), how)
        is_owner = job is not None and job.state == "running" and job.generation == lease.generation
        if locked and is_owner and not (strict and job.expired):
            assert self.on(number, lambda: end_in_batch(ending)).busy
            return
        verdict = self.expect(lease, job, str(ending.action), strict=strict)
        if batched or how == "confirm_cancel":
            reply = self.on(number, lambda: end_in_batch(ending))
            assert str(reply.verdict) == verdict
        else:
            assert str(self.on(number, lambda: WRITES[how](fenced(lease, strict)))) == verdict
        if verdict == "accepted":
            assert job is not None
            apply(job, ending)

    # a transaction that is held open over other rules

    @precondition(lambda self: self.leases and self.holder is None)
    @rule(number=sessions, pick=picks, how=st.sampled_from(["fence", "complete", "fail", "release"]))
    def begin(self, number: int, pick: int, how: str) -> None:
        lease, job = self.pick_lease(pick)
        if job is None or job.verdict(lease.generation, "renew", strict=False) != "accepted":
            return
        holder = self.pool.all[number]

        def begin() -> None:
            connection.set_autocommit(False)
            if how == "fence":
                assert Row.objects.held_by(lease).select_for_update(no_key=True).values_list("pk")
            else:
                assert outcomes.end([ending_of(lease, how)], using="default", wait=True)

        holder.do(begin)
        self.holder, self.locked = holder, job.id
        self.upon_commit = (
            (lambda job: None) if how == "fence" else lambda job: apply(job, ending_of(lease, how))
        )

    @precondition(lambda self: self.holder is not None)
    @rule(commits=st.booleans())
    def finish(self, commits: bool) -> None:
        assert self.holder is not None and self.locked is not None
        self.holder.do(committed if commits else rolled_back)
        if commits:
            self.upon_commit(self.jobs[self.locked])
        self.holder = self.locked = None

    # operators

    @some("scheduled", "ready", "running")
    @rule(number=sessions, pick=picks)
    def cancel(self, number: int, pick: int) -> None:
        job = self.pick_job(pick, *ENDED, "scheduled", "ready", "running")
        if job is not None:
            expected = job.cancel()
            reply = self.on(number, lambda: outcomes.cancel(job.id))
            assert reply.accepted is (expected is not None)
            assert reply.message == (expected or f"the job has already ended as {job.state}")

    @some(*ENDED)
    @rule(number=sessions, pick=picks)
    def retry(self, number: int, pick: int) -> None:
        job = self.pick_job(pick, *ENDED, *ENDED, "scheduled", "ready", "running")
        if job is None or self.waits_for_lock(job.unique_key):
            return
        taken = job.unique_key is not None and self.is_taken(job.unique_key, but=job.id)
        reply = self.on(number, lambda: outcomes.retry(job.id))
        assert reply.accepted is (job.state in ENDED and not taken)
        if reply.accepted:
            job.retry()

    @some("scheduled")
    @rule(number=sessions, pick=picks)
    def run_now(self, number: int, pick: int) -> None:
        job = self.pick_job(pick, "scheduled", "ready", "running", "done")
        if job is not None:
            reply = self.on(number, lambda: outcomes.run_now(job.id))
            assert reply.accepted is (job.state == "scheduled")
            if reply.accepted:
                job.state, job.due = "ready", False

    @some(*ENDED)
    @rule(number=sessions, done=st.booleans(), failed=st.booleans())
    def prune(self, number: int, done: bool, failed: bool) -> None:
        at_once = timedelta(0)
        chore = Prune(
            using="default",
            keep_done=at_once if done else None,
            keep_failed=at_once if failed else None,
            page=3,
        )

        def walk() -> int:
            count = 0
            while (deleted := chore.run_once()) or chore.after:
                count += deleted
            return count

        doomed = {
            job.id
            for job in self.jobs.values()
            if (done and job.state == "done") or (failed and job.state in ("failed", "cancelled"))
        }
        assert self.on(number, walk) == len(doomed)
        self.jobs = {job_id: job for job_id, job in self.jobs.items() if job_id not in doomed}
        self.rejections = [item for item in self.rejections if item[0] not in doomed]

    # what must hold after every step

    @invariant()
    def the_server_and_the_model_agree(self) -> None:
        rows, failures, rejections, broken = self.on(0, snapshot)
        assert rows == {
            job.id: (job.state, job.generation, job.attempts, job.workers, job.cancel_requested, job.result)
            for job in self.jobs.values()
        }
        assert failures == sorted(
            (job.id, *failure) for job in self.jobs.values() for failure in job.failures
        )
        assert sorted(rejections) == sorted(self.rejections)
        assert broken == []


def timedelta_ago() -> Any:
    from django.db.models.functions import Now

    return Now() - timedelta(seconds=1)


def fenced(lease: Lease, strict: bool) -> Lease:
    return lease._replace(fencing="strict") if strict else lease


def ending_of(lease: Lease, how: str) -> outcomes.Ending:
    text = outcomes.endings.render_exception(ValueError("boom"))
    match how:
        case "complete":
            return outcomes.Ending.done(lease, f'{{"by": {lease.generation}}}')
        case "fail":
            return outcomes.Ending.failed(lease, text, None)
        case "fail_later":
            return outcomes.Ending.failed(lease, text, HOUR)
        case "fail_now":
            return outcomes.Ending.failed(lease, text, timedelta(0))
        case "release":
            return outcomes.Ending.released(lease)
        case "snooze":
            return outcomes.Ending.snoozed(lease, HOUR)
    return outcomes.Ending.failed(lease, text, None, Kind.CANCELLED)


WRITES: dict[str, Callable[[Lease], Any]] = {
    "complete": lambda lease: outcomes.complete(lease, {"by": lease.generation}),
    "fail": lambda lease: outcomes.fail(lease, ValueError("boom")),
    "fail_later": lambda lease: outcomes.fail(lease, ValueError("boom"), delay=HOUR),
    "fail_now": lambda lease: outcomes.fail(lease, ValueError("boom"), delay=timedelta(0)),
    "release": outcomes.release,
    "snooze": lambda lease: outcomes.release(lease, delay=HOUR),
}


def apply(job: Job, ending: outcomes.Ending) -> None:
    done = ending.action == Action.COMPLETE
    job.end(
        str(ending.action),
        str(ending.state),
        result={"by": ending.lease.generation} if done else None,
        kind=str(ending.kind) if ending.kind else None,
    )


def end_in_batch(ending: outcomes.Ending) -> outcomes.Ended:
    with transaction.atomic():
        accepted = outcomes.end([ending], using="default")
    (reply,) = outcomes.settle([ending], accepted, using="default")
    return reply


def committed() -> None:
    connection.commit()
    connection.set_autocommit(True)


def rolled_back() -> None:
    connection.rollback()
    connection.set_autocommit(True)


def shown(row: Row) -> tuple[Any, ...]:
    stopping = row.cancel_requested_at is not None
    return row.state, row.generation, row.attempts, row.worker_ids, stopping, row.result


def snapshot() -> tuple[Any, ...]:
    rows = {row.pk: shown(row) for row in Row.objects.all()}
    failures = sorted(Failure.objects.values_list("job_id", "generation", "kind"))
    rejections = list(Rejection.objects.values_list("job_id", "generation", "action", "verdict"))
    broken = [(finding.invariant.name, finding.ids) for finding in audit() if not finding.holds]
    return rows, failures, rejections, broken


@pytest.fixture
def pool() -> Iterator[Sessions]:
    pool = Sessions()
    yield pool
    pool.close()


@pytest.mark.timeout(max(120, MANY * STEPS // 5))
@pytest.mark.parametrize(
    "examples", [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.slow)]
)
@pytest.mark.django_db(transaction=True)
def test_whatever_the_order_every_transition_and_every_verdict_is_the_models(
    pool: Sessions, examples: int
) -> None:
    AnyOrder.pool = pool
    by_chance = examples == MANY and "PROPERTY_EXAMPLES" in os.environ
    run_state_machine_as_test(
        AnyOrder,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            derandomize=not by_chance,
            phases=list(Phase) if by_chance else [Phase.generate],  # to shrink takes minutes
            print_blob=by_chance,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

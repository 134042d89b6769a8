"""`pgqueue_audit`: each invariant is found when it is broken, with the ids, and nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import InternalError, connection, transaction

from django_pgqueue import leases, outcomes, upkeep
from django_pgqueue.audit import INVARIANTS, MOST_IDS, audit
from django_pgqueue.bounds import RETRY_DELAY
from django_pgqueue.models import Effect, Failure, Job, Rejection
from tests.races.tools import claim_one, expire, new_job, new_jobs, reclaimed

pytestmark = pytest.mark.django_db

NAMES = [invariant.name for invariant in INVARIANTS]
CONSTRAINTS = ("pgqueue_job_lease", "pgqueue_job_attempts_left", "pgqueue_job_counters", "pgqueue_job_state")


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Take the database's own guards away, until the test's transaction is rolled back."""
    with connection.cursor() as cursor:
        for name in CONSTRAINTS:
            cursor.execute(f"ALTER TABLE django_pgqueue_job DROP CONSTRAINT {name}")
        cursor.execute("DROP INDEX pgqueue_job_unique_key")
        for table in ("failure", "effect"):
            cursor.execute(
                "SELECT conname FROM pg_constraint WHERE conrelid = %s::regclass AND contype = 'f'",
                [f"django_pgqueue_{table}"],
            )
            for (name,) in cursor.fetchall():
                cursor.execute(f'ALTER TABLE django_pgqueue_{table} DROP CONSTRAINT "{name}"')
    yield


def sql(statement: str, *values: Any) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.rowcount


def change(job_id: int, what: str) -> int:
    assert sql(f"UPDATE django_pgqueue_job SET {what} WHERE id = %s", job_id) == 1
    return job_id


def running() -> int:
    new_job()
    return claim_one().job_id


def done() -> int:
    new_job()
    lease = claim_one()
    outcomes.complete(lease)
    return lease.job_id


def failure(job_id: int, generation: int = 1) -> int:
    Failure.objects.create(job_id=job_id, generation=generation, kind="error")
    return job_id


def effect(job_id: int, generation: int = 1) -> int:
    Effect.objects.create(job_id=job_id, generation=generation, key="mail")
    return job_id


def rejection(job_id: int, **columns: Any) -> int:
    Rejection.objects.create(job_id=job_id, **{"action": "complete", "verdict": "superseded", **columns})
    return job_id


def two_of_one_key() -> tuple[int, ...]:
    return new_job(unique_key="k"), new_job(unique_key="k", state="scheduled")


# How each invariant is broken; several ways where its statement has several sides. Each returns the id to be found.
BREAKS: list[tuple[str, Callable[[], int | tuple[int, ...]]]] = [
    ("running-has-lease", lambda: change(running(), "lease_until = NULL")),
    ("running-has-lease", lambda: change(new_job(), "lease_until = clock_timestamp()")),
    ("generation-counts-claims", lambda: change(running(), "generation = 5, attempts = 1")),
    ("generation-counts-claims", lambda: change(running(), "worker_ids = '{}'")),
    ("attempts-within-generation", lambda: change(running(), "attempts = 2")),
    ("waiting-has-attempts-left", lambda: change(new_job(max_attempts=1), "attempts = 1")),
    ("waiting-has-attempts-left", lambda: change(new_job(state="scheduled", max_attempts=1), "attempts = 1")),
    ("ended-was-claimed", lambda: change(new_job(), "state = 'done', finished_at = now()")),
    ("ended-was-claimed", lambda: change(done(), "started_at = NULL")),
    ("ended-has-end", lambda: change(done(), "finished_at = NULL")),
    ("ended-has-end", lambda: change(new_job(), "finished_at = now()")),
    ("expired-is-recovered", lambda: change(running(), "lease_until = now() - interval '61 minutes'")),
    ("unique-keys", two_of_one_key),
    ("one-ending-per-generation", lambda: failure(done())),
    ("one-ending-per-generation", lambda: failure(failure(running()))),
    ("failures-of-claims", lambda: failure(running(), 2)),
    ("failures-of-claims", lambda: failure(running(), 0)),
    ("failures-of-claims", lambda: failure(987654321)),
    ("effects-of-claims", lambda: effect(running(), 2)),
    ("effects-of-claims", lambda: effect(running(), 0)),
    ("effects-of-claims", lambda: effect(987654321)),
    ("superseded-by-newer", lambda: rejection(running(), generation=1, current_generation=1)),
    ("superseded-by-newer", lambda: rejection(running(), generation=1, current_generation=2)),
    ("superseded-by-newer", lambda: rejection(running(), generation=1, verdict="accepted")),
    ("superseded-by-newer", lambda: rejection(running(), generation=1, verdict="already_accepted")),
]


def busy_queue() -> None:
    """Leave one job in every state, by every way in which workers and operators bring it there."""
    for delay in (None, 0):
        new_job(max_attempts=2)
        outcomes.fail(claim_one("A"), ValueError(), delay=None if delay is None else RETRY_DELAY.most)
    new_job(unique_key="k")
    outcomes.complete(claim_one("A"), {"x": 1})
    new_job(unique_key="k")
    stale = claim_one("A")
    newer = reclaimed(stale)
    outcomes.complete(stale)
    effect(newer.job_id, 2)
    outcomes.complete(newer)
    new_job()
    outcomes.release(claim_one("A"))
    outcomes.cancel(claim_one("A").job_id)
    expire(*Job.objects.filter(state="running").values_list("pk", flat=True))
    upkeep.exhaust()
    new_job(max_attempts=1)
    spent = claim_one("A")
    expire(spent.job_id)
    upkeep.exhaust()
    outcomes.retry(spent.job_id)
    outcomes.cancel(new_job())
    new_jobs(3)
    leases.claim(worker="A", limit=2)
    new_job(state="scheduled")


def test_whatever_workers_and_operators_did_every_invariant_holds():
    busy_queue()
    assert {job.state for job in Job.objects.all()} == {
        "scheduled", "ready", "running", "done", "failed", "cancelled",
    }  # fmt: skip
    assert [(finding.invariant.name, finding.ids) for finding in audit()] == [(name, []) for name in NAMES]


def test_every_invariant_is_broken_below():
    assert {name for name, _ in BREAKS} == set(NAMES)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "number", range(len(BREAKS)), ids=[f"{name}-{at}" for at, (name, _) in enumerate(BREAKS)]
)
def test_a_broken_invariant_is_found_with_its_jobs_and_no_other(number):
    busy_queue()
    name, break_it = BREAKS[number]
    offending = break_it()
    expected = sorted(offending) if isinstance(offending, tuple) else [offending]
    found = {finding.invariant.name: finding.ids for finding in audit()}
    assert found[name] == expected
    # What else may speak of the same job is told of the same job only.
    assert {job_id for ids in found.values() for job_id in ids} == set(expected)

    report = StringIO()
    with pytest.raises(CommandError) as caught:
        call_command("pgqueue_audit", "--json", stdout=report)
    assert caught.value.returncode == 1
    shown = {item["name"]: item for item in json.loads(report.getvalue())["invariants"]}
    assert (shown[name]["holds"], shown[name]["ids"]) == (False, expected)


@pytest.mark.usefixtures("unchecked")
def test_only_the_first_of_very_many_ids_are_listed():
    ids = [change(job_id, "finished_at = now()") for job_id in new_jobs(MOST_IDS + 5)]
    found = {finding.invariant.name: finding.ids for finding in audit()}
    assert found["ended-has-end"] == sorted(ids)[:MOST_IDS]


def test_a_clean_database_ends_with_exit_code_0_and_a_line_for_each_invariant():
    busy_queue()
    out = StringIO()
    assert call_command("pgqueue_audit", stdout=out, no_color=True) is None
    assert out.getvalue().splitlines() == [f"holds   {invariant.text}" for invariant in INVARIANTS]


@pytest.mark.usefixtures("unchecked")
def test_the_report_for_people_names_the_jobs():
    job_id = change(running(), "lease_until = NULL")
    out = StringIO()
    with pytest.raises(CommandError, match=f"1 of {len(INVARIANTS)} invariants are broken"):
        call_command("pgqueue_audit", stdout=out, no_color=True)
    assert f"BROKEN  A job has a lease exactly while it is running (jobs {job_id})" in out.getvalue()


def test_the_json_report_is_one_object_of_a_stable_shape():
    out = StringIO()
    call_command("pgqueue_audit", "--json", stdout=out)
    report = json.loads(out.getvalue())
    assert list(report) == ["holds", "invariants"]
    assert report["holds"] is True
    assert [list(item) for item in report["invariants"]] == [["name", "text", "holds", "ids"]] * len(
        INVARIANTS
    )
    assert [item["name"] for item in report["invariants"]] == NAMES
    assert len(set(NAMES)) == len(NAMES)


def test_it_runs_on_the_alias_that_was_named():
    with pytest.raises(Exception, match="nobody"):
        call_command("pgqueue_audit", "--database", "nobody")


@pytest.mark.django_db(transaction=True)
def test_it_is_one_read_only_snapshot(monkeypatch):
    """The server itself would refuse a write; what others commit meanwhile is not seen by half."""
    from django_pgqueue import audit as module
    from tests.races.tools import InThread

    seen = []
    check = module._check

    def spy(cursor, invariant):
        cursor.execute("SHOW transaction_read_only")
        read_only = cursor.fetchone()[0]
        cursor.execute("SELECT count(*) FROM django_pgqueue_job")
        seen.append((read_only, cursor.fetchone()[0]))
        InThread(new_job).result()
        return check(cursor, invariant)

    monkeypatch.setattr(module, "_check", spy)
    audit()
    assert seen == [("on", 0)] * len(INVARIANTS)
    assert Job.objects.count() == len(INVARIANTS)

    def writes(cursor, invariant):
        cursor.execute("DELETE FROM django_pgqueue_job")

    monkeypatch.setattr(module, "_check", writes)
    with pytest.raises(InternalError, match="read-only transaction"):
        audit()
    with transaction.atomic():
        assert Job.objects.count() == len(INVARIANTS)
    new_job()  # and the connection is as it was

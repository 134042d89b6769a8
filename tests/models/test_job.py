"""The table of jobs: what a plain INSERT may leave out, and what no row may say."""

import json

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction

from django_pgqueue import task
from django_pgqueue.compat import TaskResultStatus, task_backends
from django_pgqueue.leases import claim
from django_pgqueue.models import Failure, Job, Rejection
from django_pgqueue.outcomes import complete
from django_pgqueue.states import State, Verdict


@task
def shout(text: str) -> str:
    return text.upper()


def execute(statement: str, *values: object) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


# Plain SQL


@pytest.mark.django_db
def test_a_plain_insert_is_a_valid_enqueue_that_can_be_claimed() -> None:
    payload = json.dumps({"args": ["from", 1], "kwargs": {"any": "language"}})
    ((job_id,),) = execute(
        "INSERT INTO django_pgqueue_job (task, payload) VALUES (%s, %s) RETURNING id",
        "shop.tasks.send",
        payload,
    )
    job = Job.objects.get(pk=job_id)
    assert (job.state, job.queue, job.priority, job.backend) == (State.READY, "default", 0, "default")
    assert (job.generation, job.attempts, job.max_attempts, job.worker_ids) == (0, 0, 5, [])
    assert job.enqueued_at == job.run_after
    assert (job.lease_until, job.unique_key, job.result, job.started_at) == (None, None, None, None)
    (lease,) = claim(worker="w-1")
    assert (lease.job_id, lease.generation, lease.attempt) == (job_id, 1, 1)
    assert lease.arguments() == (["from", 1], {"any": "language"})
    assert complete(lease) == Verdict.ACCEPTED


@pytest.mark.django_db
def test_a_payload_may_be_left_out() -> None:
    execute("INSERT INTO django_pgqueue_job (task) VALUES ('shop.tasks.send')")
    (lease,) = claim(worker="w-1")
    assert lease.arguments() == ([], {})


@pytest.mark.django_db(transaction=True)
def test_a_job_from_plain_sql_runs_in_a_worker_with_its_result() -> None:
    ((job_id,),) = execute(
        "INSERT INTO django_pgqueue_job (task, payload) VALUES (%s, %s) RETURNING id",
        shout.module_path,
        '{"args": ["hello"], "kwargs": {}}',
    )
    call_command("runworker", batch=True, verbosity=0)
    result = task_backends["default"].get_result(str(job_id))
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, "HELLO")


# Constraints


READY = {"task": "'x'"}

BROKEN = [
    ("pgqueue_job_state", {"state": "'paused'"}),
    ("pgqueue_job_state", {"state": "''"}),
    ("pgqueue_job_priority", {"priority": "101"}),
    ("pgqueue_job_priority", {"priority": "-101"}),
    ("pgqueue_job_lease", {"state": "'running'"}),
    ("pgqueue_job_lease", {"state": "'ready'", "lease_until": "now()"}),
    ("pgqueue_job_lease", {"state": "'done'", "lease_until": "now()"}),
    ("pgqueue_job_counters", {"generation": "-1"}),
    ("pgqueue_job_counters", {"attempts": "-1"}),
    ("pgqueue_job_counters", {"max_attempts": "0", "state": "'done'"}),
    ("pgqueue_job_attempts_left", {"attempts": "5"}),
    ("pgqueue_job_attempts_left", {"attempts": "6", "state": "'scheduled'"}),
    ("pgqueue_job_times", {"run_after": "'infinity'"}),
    ("pgqueue_job_times", {"enqueued_at": "'-infinity'"}),
    ("pgqueue_job_times", {"run_after": "'12000-01-01'", "state": "'scheduled'"}),
    ("task", {"task": "NULL"}),
    ("payload", {"payload": "NULL"}),
    ("queue", {"queue": "NULL"}),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("name", "columns"), BROKEN)
def test_what_no_row_may_say_is_refused_by_the_database(name: str, columns: dict[str, str]) -> None:
    columns = {**READY, **columns}
    statement = (
        f"INSERT INTO django_pgqueue_job ({', '.join(columns)}) VALUES ({', '.join(columns.values())})"
    )
    with pytest.raises(IntegrityError, match=name), transaction.atomic():
        execute(statement)
    assert Job.objects.count() == 0


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["scheduled", "ready", "running"])
def test_two_live_jobs_cannot_hold_one_key(state: str) -> None:
    execute("INSERT INTO django_pgqueue_job (task, unique_key) VALUES ('x', 'k')")
    lease = "now()" if state == "running" else "NULL"
    with pytest.raises(IntegrityError, match="pgqueue_job_unique_key"), transaction.atomic():
        execute(
            f"INSERT INTO django_pgqueue_job (task, unique_key, state, lease_until) VALUES ('x', 'k', %s, {lease})",
            state,
        )


@pytest.mark.django_db
def test_ended_jobs_may_share_a_key_and_so_may_jobs_without_one() -> None:
    for state in ("done", "failed", "cancelled", "ready"):
        execute("INSERT INTO django_pgqueue_job (task, unique_key, state) VALUES ('x', 'k', %s)", state)
        execute("INSERT INTO django_pgqueue_job (task, state) VALUES ('x', %s)", state)
    assert Job.objects.count() == 8


@pytest.mark.django_db
def test_the_constraints_that_exist_are_those_of_the_models() -> None:
    rows = execute(
        "SELECT conname FROM pg_constraint WHERE conrelid = 'django_pgqueue_job'::regclass AND contype = 'c'"
    )
    assert {name for (name,) in rows} == {name for name, _ in BROKEN if name.startswith("pgqueue")}


@pytest.mark.django_db
def test_a_deleted_job_takes_its_failures_along_and_leaves_its_rejections() -> None:
    job = Job.objects.create(task="x")
    job_id = job.pk
    Failure.objects.create(job=job, generation=1, kind="error")
    Rejection.objects.create(job_id=job_id, generation=1, action="complete", verdict="missing")
    job.delete()
    assert Failure.objects.filter(job_id=job_id).count() == 0
    assert Rejection.objects.filter(job_id=job_id).count() == 1


# Storage


@pytest.mark.django_db
def test_the_jobs_table_has_its_storage_parameters() -> None:
    ((options,),) = execute("SELECT reloptions FROM pg_class WHERE oid = 'django_pgqueue_job'::regclass")
    assert set(options) == {
        "fillfactor=75",
        "autovacuum_vacuum_scale_factor=0",
        "autovacuum_vacuum_threshold=20000",
        "autovacuum_analyze_scale_factor=0",
        "autovacuum_analyze_threshold=50000",
    }


@pytest.mark.django_db
def test_the_jobs_table_has_four_partial_indexes_and_its_primary_key_only() -> None:
    rows = execute(
        "SELECT c.relname, i.indisunique, pg_get_expr(i.indpred, i.indrelid), pg_get_indexdef(i.indexrelid)"
        " FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid"
        " WHERE i.indrelid = 'django_pgqueue_job'::regclass AND NOT i.indisprimary"
    )
    found = {row[0]: row[1:] for row in rows}
    assert set(found) == {
        "pgqueue_job_ready",
        "pgqueue_job_scheduled",
        "pgqueue_job_running",
        "pgqueue_job_unique_key",
    }
    columns = {
        name: definition.partition("USING btree ")[2].partition(" WHERE ")[0]
        for name, (_, _, definition) in found.items()
    }
    assert columns == {
        "pgqueue_job_ready": "(queue, ((- priority)), id)",
        "pgqueue_job_scheduled": "(run_after, id)",
        "pgqueue_job_running": "(id)",
        "pgqueue_job_unique_key": "(unique_key)",
    }
    for name, state in (("ready", "ready"), ("scheduled", "scheduled"), ("running", "running")):
        assert f"'{state}'" in found[f"pgqueue_job_{name}"][1]
    assert [name for name, (unique, _, _) in found.items() if unique] == ["pgqueue_job_unique_key"]


@pytest.mark.django_db
def test_every_column_of_a_job_that_has_a_natural_default_has_it_in_the_database() -> None:
    rows = execute(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'django_pgqueue_job'"
        " AND is_nullable = 'NO' AND column_default IS NULL AND is_identity = 'NO'"
    )
    assert {name for (name,) in rows} == {"task"}

"""Each statement of `sql` on one big table: the index that its comment names, and its budget of buffers.

Buffers are the pages a statement touches, so they repeat where seconds do not. The table stands in a schema of
its own, found by the search_path alone (118), and has 300,000 finished, 200,000 ready, 200,000 scheduled and
20,000 running jobs. 70, 75, 76: cost per job does not grow with any of them.

A row of this table takes some 240 bytes, 25 rows a page. That, three levels of primary key and the entry that a change
of state adds to it are where the budgets of endings (10 to 15 buffers a row) and heartbeats (6 to 7 a row) come from.
PostgreSQL before 17 goes down an index once for each id of a batch: 2 more, twice.
The running set is read where claims have put it: here on 3,000 pages, because a claim's new version goes to any page
with room. So the reclaim's probe costs a fraction of the running jobs (6 ms), whatever else there is, at a low rate.
"""

import json
import os
from datetime import timedelta

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, connections

from django_pgqueue import leases, outcomes, upkeep, verdicts
from django_pgqueue.bounds import LEASE
from django_pgqueue.enqueueing import Request, enqueue
from django_pgqueue.lease import Lease
from django_pgqueue.models import Job
from django_pgqueue.payloads import ErrorText
from django_pgqueue.upkeep import next_due, promote
from tests.plans.explaining import explain

BIG = "plans"
pytestmark = pytest.mark.django_db(databases=["default", BIG])

DONE, RUNNING, READY, SCHEDULED = 300_000, 20_000, 200_000, 200_000
FILL = f"""
    INSERT INTO django_pgqueue_job (task, payload, state, queue, priority, attempts, generation, worker_ids,
                                    started_at, last_attempted_at, finished_at, result)
    SELECT 'shop.tasks.send_receipt', jsonb_build_object('args', jsonb_build_array(n), 'kwargs', '{{}}'::jsonb), 'done',
           'default', 0, 1, 1, ARRAY['worker-' || n % 20], now(), now(), now(), '{{"mail": 1}}'
    FROM generate_series(1, {DONE}) AS n;

    INSERT INTO django_pgqueue_job (task, payload, queue, priority)
    SELECT 'shop.tasks.send_receipt', jsonb_build_object('args', jsonb_build_array(n), 'kwargs', '{{}}'::jsonb),
           CASE WHEN n <= {RUNNING} THEN 'default' WHEN n % 1000 = 0 THEN 'rare' WHEN n % 4 = 0 THEN 'emails'
                ELSE 'default' END,
           CASE WHEN n <= {RUNNING} THEN 100 ELSE n % 7 * 10 - 30 END
    FROM generate_series(1, {RUNNING + READY}) AS n;

    INSERT INTO django_pgqueue_job (task, payload, state, run_after, unique_key)
    SELECT 'shop.tasks.send_receipt', jsonb_build_object('args', jsonb_build_array(n), 'kwargs', '{{}}'::jsonb),
           'scheduled', now() + interval '1 day' + n * interval '1 second', 'receipt-' || n
    FROM generate_series(1, {SCHEDULED}) AS n;
"""


@pytest.fixture(scope="module", autouse=True)
def big_table(django_db_setup, django_db_blocker):
    """Build the table once, in a schema of the test database that only this alias looks into."""
    settings = connection.settings_dict
    with django_db_blocker.unblock():
        with connection.cursor() as cursor:
            cursor.execute(f"DROP SCHEMA IF EXISTS {BIG} CASCADE; CREATE SCHEMA {BIG}")
        connection.close()
        options = {**settings["OPTIONS"], "options": f"-c search_path={BIG} -c statement_timeout=100s"}
        connections.databases[BIG] = {**settings, "OPTIONS": options}
        call_command("migrate", "django_pgqueue", database=BIG, verbosity=0)
        with connections[BIG].cursor() as cursor:
            cursor.execute("ALTER TABLE django_pgqueue_job SET (autovacuum_enabled = false)")
            cursor.execute(FILL)
            cursor.execute("VACUUM (ANALYZE) django_pgqueue_job")
        for number in range(RUNNING // 100):  # as workers do, and each of them beats twice
            batch = leases.claim(
                worker=f"worker-{number % 20}", limit=100, lease=timedelta(days=1), using=BIG
            )
            leases.push(batch, using=BIG)
            leases.push(batch, using=BIG)
        with connections[BIG].cursor() as cursor:
            cursor.execute("VACUUM (ANALYZE) django_pgqueue_job")
    yield
    with django_db_blocker.unblock():
        with connections[BIG].cursor() as cursor:
            cursor.execute(f"DROP SCHEMA {BIG} CASCADE")
        connections[BIG].close()
    del connections[BIG], connections.databases[BIG]


@pytest.fixture(autouse=True)
def swept(big_table, django_db_blocker):
    """Sweep away what the plans of earlier tests left: the server does it by itself only while nobody else is busy."""
    with django_db_blocker.unblock():
        parameters = connections[BIG].get_connection_params()
        with psycopg.connect(**{**parameters, "cursor_factory": None}, autocommit=True) as session:
            session.execute("VACUUM django_pgqueue_job")


@pytest.fixture
def measured(request):
    """Note the numbers of a test: shown with PLANS_SHOW=1, for the README and for whoever changes a statement."""
    noted = {}
    yield noted
    if os.environ.get("PLANS_SHOW"):
        with open(os.environ["PLANS_SHOW"], "a") as file:
            file.write(json.dumps({request.node.name: noted}) + "\n")


def held(count, *, strict=False):
    """Return the leases of `count` running jobs of the table."""
    rows = Job.objects.using(BIG).running().order_by("last_attempted_at", "id")[1000 : 1000 + count]
    return [
        Lease(
            job_id=job.pk,
            generation=job.generation,
            attempt=job.attempts,
            max_attempts=job.max_attempts,
            task=job.task,
            queue=job.queue,
            priority=job.priority,
            backend=job.backend,
            payload="{}",
            worker=job.worker_ids[-1],
            worker_ids=job.worker_ids,
            enqueued_at=job.enqueued_at,
            started_at=job.started_at,
            claimed_at=job.last_attempted_at,
            duration=LEASE.default,
            fencing="strict" if strict else "token",
        )
        for job in rows
    ]


def plan_of(work, **given):
    return explain(work, using=BIG, **given)


def descents():
    """Return what a budget of a batch is multiplied by: one walk for all ids came with PostgreSQL 17."""
    return 1 if connection.pg_version >= 170000 else 1.5


# As any session sends a statement, and as a worker's loop does, which lets the server keep it and plans it once.
ways = pytest.mark.parametrize("kept", [False, True], ids=["planned each time", "kept"])


@ways
@pytest.mark.parametrize(
    ("limit", "queues", "budget"),
    [
        (1, ["default"], 30),
        (50, ["default"], 900),
        (1, ["rare", "emails", "default"], 30),
        (50, ["rare", "emails", "default"], 900),
        (50, ["nobody's", "rare", "emails", "default"], 900),
        (250, ["rare", "emails"], 4500),
    ],
)
def test_a_claim_walks_down_the_index_of_ready_jobs_and_no_further_than_it_takes(
    limit, queues, budget, kept, measured
):
    """300k done, 200k scheduled and 20k running jobs cost it nothing. Report 70."""
    plan = plan_of(lambda: leases.claim(worker="w", queues=queues, limit=limit, using=BIG), kept=kept)
    measured[f"claim {limit} of {queues}"] = plan.buffers
    assert plan.rows == limit
    assert plan.buffers <= budget, plan
    assert plan.indexes == {"pgqueue_job_ready", "django_pgqueue_job_pkey"}
    assert not plan.scans_the_table


@ways
def test_a_claim_after_a_position_asks_the_index_for_queue_and_position(kept, measured):
    """The hint is an index condition, so what lies before the position is not walked. Report 74."""
    after = {"default": (-30, 400_000)}
    plan = plan_of(lambda: leases.claim(worker="w", queues=["default"], after=after, using=BIG), kept=kept)
    measured["claim 1 after a position"] = plan.buffers
    assert plan.rows == 1
    assert plan.buffers <= 30, plan
    assert "ROW(" in plan.conditions and "queue" in plan.conditions, plan.conditions


@ways
def test_an_idle_claim_costs_a_few_buffers_per_queue(kept, measured):
    """Report 140."""
    queues = [f"empty-{number}" for number in range(10)]
    plan = plan_of(lambda: leases.claim(worker="w", queues=queues, limit=50, using=BIG), kept=kept)
    measured["idle claim of 10 queues"] = plan.buffers
    assert plan.buffers <= 40, plan


def test_the_names_of_all_queues_come_from_a_loose_index_scan(measured):
    """No DISTINCT over 200k ready jobs. Report 75."""
    plan = plan_of(lambda: leases.ready_queues(using=BIG))
    measured["ready_queues, 3 queues"] = plan.buffers
    assert plan.rows == 3
    assert plan.buffers <= 24, plan
    assert plan.indexes == {"pgqueue_job_ready"}


ERROR = ErrorText(exception_class="ValueError", message="wrong", traceback="")
HOUR = timedelta(hours=1)
ENDINGS = {
    "complete plainly": outcomes.Ending.done,
    "complete": lambda lease: outcomes.Ending.done(lease, '{"mail": 1}'),
    "fail": lambda lease: outcomes.Ending.failed(lease, ERROR, None),
    "fail and retry": lambda lease: outcomes.Ending.failed(lease, ERROR, HOUR),
    "release": outcomes.Ending.released,
    "snooze": lambda lease: outcomes.Ending.snoozed(lease, HOUR),
}


@ways
@pytest.mark.parametrize("wait", [False, True], ids=["batch", "fence"])
@pytest.mark.parametrize(
    ("ending", "count", "budget"),
    [
        ("complete plainly", 1, 20),
        ("complete plainly", 50, 700),
        ("complete", 1, 20),
        ("complete", 50, 700),
        ("fail", 50, 700),
        ("fail and retry", 50, 1000),
        ("release", 50, 1000),
        ("snooze", 50, 1000),
    ],
)
def test_an_ending_finds_its_rows_by_primary_key(ending, count, budget, wait, kept, measured):
    """Constant work per completion; 20k running jobs cost it nothing. Report 76."""
    batch = [ENDINGS[ending](lease) for lease in held(count)]
    plan = plan_of(lambda: outcomes.end(batch, using=BIG, wait=wait), kept=kept)
    measured[f"{ending} {count}"] = plan.buffers
    assert plan.rows == count
    assert plan.buffers <= budget * descents(), plan
    assert plan.indexes <= {"django_pgqueue_job_pkey", "pgqueue_job_running"}
    assert "id = ANY" in plan.conditions or "id = " in plan.conditions
    assert not plan.scans_the_table


@pytest.mark.parametrize(("count", "budget"), [(1, 15), (50, 350), (500, 4000)])
@pytest.mark.parametrize("strict", [False, True], ids=["token", "strict"])
def test_a_heartbeat_finds_its_rows_by_primary_key(count, budget, strict, measured):
    batch = held(count, strict=strict)
    plan = plan_of(lambda: leases.push(batch, using=BIG))
    measured[f"renew {count}"] = plan.buffers
    assert plan.rows == count
    assert plan.buffers <= budget * descents(), plan
    assert plan.indexes <= {"django_pgqueue_job_pkey", "pgqueue_job_running"}
    assert not plan.scans_the_table


def test_an_idle_promotion_reads_the_first_entry_of_the_scheduled_jobs(measured):
    plan = plan_of(lambda: promote(using=BIG))
    measured["idle promotion"] = plan.buffers
    assert plan.rows == 0
    assert plan.buffers <= 6, plan
    assert "pgqueue_job_scheduled" in plan.indexes
    assert not plan.scans_the_table


def test_the_next_due_time_is_one_index_entry(measured):
    plan = plan_of(lambda: next_due(using=BIG))
    measured["next_due"] = plan.buffers
    assert plan.buffers <= 10, plan
    assert plan.indexes == {"pgqueue_job_scheduled"}


def test_a_promotion_costs_by_what_is_due_only(measured):
    """An index for "becomes due". Report 75."""
    with connections[BIG].cursor() as cursor:
        cursor.execute(
            "UPDATE django_pgqueue_job SET run_after = now() - interval '1 hour' WHERE id IN "
            "(SELECT id FROM django_pgqueue_job WHERE state = 'scheduled' ORDER BY id LIMIT 100)"
        )
    plan = plan_of(lambda: promote(using=BIG))
    measured["promotion of 100"] = plan.buffers
    assert plan.rows == 100
    assert plan.buffers <= 3000, plan
    assert "pgqueue_job_scheduled" in plan.indexes
    assert not plan.scans_the_table


PROBES = {
    "reclaim": lambda: leases.reclaim(worker="w", limit=10, using=BIG),
    "reclaim of queues": lambda: leases.reclaim(
        worker="w", queues=["rare"], excluded=["x"], limit=10, using=BIG
    ),
    "exhaust": lambda: upkeep.exhaust(using=BIG),
    "orphans": lambda: leases.orphans(worker="worker-x", known=(), lease=LEASE.default, using=BIG),
}


@ways
@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_for_expired_jobs_reads_the_running_set_only(probe, kept, measured):
    """20k running jobs are read; the 700k others are not. Report 70."""
    plan = plan_of(PROBES[probe], kept=kept)
    measured[probe] = plan.buffers
    assert plan.rows == 0
    assert plan.buffers <= RUNNING * 0.3, plan
    assert "pgqueue_job_running" in plan.indexes
    assert not plan.scans_the_table


def test_what_refused_writes_look_at_is_found_by_primary_key(measured):
    batch = held(50)
    plan = plan_of(lambda: verdicts.sort_out(batch, "complete", using=BIG))
    measured["observe 50"] = plan.buffers
    assert plan.buffers <= 400, plan
    assert "django_pgqueue_job_pkey" in plan.indexes


REQUEST = Request(
    task="t", payload="{}", queue="default", priority=0, max_attempts=1, backend="default", delay=HOUR
)


def test_an_enqueue_touches_a_handful_of_buffers(measured):
    plan = plan_of(lambda: enqueue(REQUEST, hint=False, using=BIG))
    measured["enqueue"] = plan.buffers
    assert plan.buffers <= 40, plan
    assert not plan.scans_the_table


@pytest.mark.parametrize("operation", [outcomes.cancel, outcomes.run_now], ids=["cancel", "run_now"])
def test_an_operator_s_change_is_one_row_by_primary_key(operation, measured):
    job_id = DONE + RUNNING + READY + 100
    plan = plan_of(lambda: operation(job_id, using=BIG))
    measured[operation.__name__] = plan.buffers
    assert plan.rows == 1
    assert plan.buffers <= 40, plan
    assert plan.indexes == {"django_pgqueue_job_pkey"}


def test_no_index_contains_the_lease_and_there_are_no_others_than_the_five():
    """An index on lease_until would make every heartbeat write every index."""
    with connections[BIG].cursor() as cursor:
        cursor.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = %s AND tablename = 'django_pgqueue_job'",
            [BIG],
        )
        indexes = dict(cursor.fetchall())
    assert set(indexes) == {
        "django_pgqueue_job_pkey",
        "pgqueue_job_ready",
        "pgqueue_job_running",
        "pgqueue_job_scheduled",
        "pgqueue_job_unique_key",
    }
    assert not [name for name, definition in indexes.items() if "lease_until" in definition]
    partial = [name for name, definition in indexes.items() if "WHERE" in definition]
    assert len(partial) == 4  # over live rows only: a finished job is in none of them


def test_heartbeats_write_no_index():
    """HOT updates: the new version goes to the same page, and no index hears of it."""
    batch = held(500)
    look = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_all_tables WHERE relid = 'django_pgqueue_job'::regclass"
    with connections[BIG].cursor() as cursor:
        cursor.execute(look)
        before = cursor.fetchone()
        for _ in range(4):
            assert len(leases.push(batch, using=BIG).renewed) == 500
        cursor.execute(look)
        updated, hot = (after - first for after, first in zip(cursor.fetchone(), before, strict=True))
    assert updated == 2000
    # One transaction cannot prune what it has just replaced: four rounds in it are harder than four beats.
    assert hot >= updated * 0.8


def test_a_claim_under_an_old_snapshot_stays_cheap_with_the_position_hint(measured):
    """Somebody's dump holds a snapshot while 5,000 jobs pass; nothing of them can be vacuumed. Report 74."""
    params = connections[BIG].get_connection_params()
    del params["cursor_factory"]
    with psycopg.connect(**params) as dump:
        dump.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        dump.execute("SELECT count(*) FROM django_pgqueue_failure")
        for _ in range(50):
            batch = leases.claim(worker="w", queues=["emails"], limit=100, using=BIG)
            outcomes.end([outcomes.Ending.done(lease) for lease in batch], using=BIG)
        position = max(lease.position for lease in batch)
        plain = plan_of(lambda: leases.claim(worker="w", queues=["emails"], using=BIG))
        hinted = plan_of(
            lambda: leases.claim(worker="w", queues=["emails"], after={"emails": position}, using=BIG)
        )
    measured["old snapshot, plain"] = plain.buffers
    measured["old snapshot, hint"] = hinted.buffers
    assert hinted.rows == 1
    assert hinted.buffers <= 40, hinted
    assert plain.buffers > 10 * hinted.buffers

"""The session of a worker's loop: the server keeps its statements and their plans, unless a pooler is in between."""

from datetime import UTC, datetime, timedelta
from unittest import mock

import psycopg
import pytest
from django.db import connection, transaction

from django_pgqueue import leases, outcomes
from django_pgqueue.connections import keep_statements
from django_pgqueue.models import Job
from tests.races.tools import new_job

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 20_000
FILL = f"""
    INSERT INTO django_pgqueue_job (task, payload, state, worker_ids, attempts, generation)
    SELECT 't', '{{}}', 'done', '{{w}}', 1, 1 FROM generate_series(1, {MANY});
    INSERT INTO django_pgqueue_job (task, payload) SELECT 't', '{{}}' FROM generate_series(1, {MANY})
"""
SCANS = """
    SELECT seq_scan, idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = 'django_pgqueue_job'::regclass
"""
KEPT = """
    SELECT sum(generic_plans), sum(custom_plans) FROM pg_prepared_statements
    WHERE statement LIKE '%FROM candidate%' AND statement NOT LIKE '%pg_prepared_statements%'
"""


@pytest.fixture(autouse=True)
def own_session():
    """Give the test a new session, and the next test another one."""
    connection.close()
    yield
    connection.close()


def test_what_django_reads_on_such_a_session_is_what_it_reads_on_any():
    job_id = new_job(payload={"args": [1.5, "é"], "kwargs": {}}, worker_ids=["a", "b"])
    plain = Job.objects.values().get(pk=job_id)
    connection.close()
    assert keep_statements("default")
    assert Job.objects.values().get(pk=job_id) == plain
    assert Job.objects.filter(payload__args__contains=[1.5], enqueued_at=plain["enqueued_at"]).exists()


def ask(statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()


def a_round(limit):
    """Do what a cycle of the loop does, with a reclaim; return the leases."""
    taken = leases.reclaim(worker="w", limit=limit) + leases.claim(
        worker="w", queues=["default"], limit=limit
    )
    with transaction.atomic():
        outcomes.end([outcomes.Ending.done(lease) for lease in taken], using="default")
        outcomes.end([outcomes.Ending.done(lease, "1") for lease in taken], using="default")
    return taken


def test_plans_made_for_an_empty_table_read_no_more_of_a_full_one_than_they_must():
    """Nothing has analyzed the table in between, and no plan is made again. Report 70."""
    assert keep_statements("default")
    new_job()
    assert len(a_round(5)) == 1
    Job.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = on")  # for the filling only: the plans are there
        cursor.execute("ALTER TABLE django_pgqueue_job SET (autovacuum_enabled = false)")
    with psycopg.connect(**{**connection.get_connection_params(), "cursor_factory": psycopg.Cursor}) as other:
        other.execute(FILL)
    a_round(0)

    with transaction.atomic():
        before = ask(SCANS)
        assert len(a_round(50)) == 50
        scans, fetched = (after - earlier for after, earlier in zip(ask(SCANS), before, strict=True))
        transaction.set_rollback(True)
    assert scans == 0
    assert fetched < 1000


def test_a_claim_is_planned_once_and_for_good():
    assert keep_statements("default")
    for number in range(8):
        new_job()
        assert len(leases.claim(worker="w", queues=["default"], limit=number + 1)) == 1
    assert ask(KEPT) == (8, 0)


def test_behind_a_pooler_nothing_is_kept():
    """The process that a pooler's greeting names is not the one that answers."""
    with mock.patch.object(psycopg.ConnectionInfo, "backend_pid", 1):
        assert not keep_statements("default")
    new_job()
    assert len(leases.claim(worker="w")) == 1
    assert ask("SELECT count(*) FROM pg_prepared_statements") == (0,)
    assert ask("SELECT current_setting('enable_seqscan')") == ("on",)


@pytest.mark.parametrize("use_tz", [True, False])
def test_a_lease_has_the_same_fields_either_way(settings, use_tz):
    settings.USE_TZ = use_tz
    job_id = new_job(payload={"args": ["é"], "kwargs": {}}, queue="q", priority=7)
    with transaction.atomic():
        (plain,) = leases.claim(worker="w")
        transaction.set_rollback(True)
    connection.close()
    assert keep_statements("default")
    with transaction.atomic():
        (kept,) = leases.claim(worker="w")
        (found,) = leases.orphans(worker="w", known=(), lease=timedelta(seconds=30), using="default")
    assert (kept.job_id, kept.queue, kept.priority, kept.worker_ids) == (job_id, "q", 7, ["w"])
    assert kept._replace(started_at=None, claimed_at=None) == plain._replace(started_at=None, claimed_at=None)
    assert found == kept
    for lease in (plain, kept):
        assert (lease.claimed_at.tzinfo is not None) == use_tz
        now = datetime.now(UTC) if use_tz else datetime.now()
        assert abs(lease.claimed_at - now) < timedelta(minutes=1)

"""The first article's combined claim against this package's two, on 100,000 finished jobs; rolled back."""

import pytest
from django.db import connection, transaction

from django_pgqueue import leases
from tests.articles.test_walkthrough import ARTICLES_CLAIM
from tests.plans.explaining import explain

pytestmark = pytest.mark.django_db(transaction=True)

HISTORY = """
    INSERT INTO django_pgqueue_job (task, state, attempts, generation, finished_at)
    SELECT 'shop.tasks.nothing', 'done', 1, 1, now() FROM generate_series(1, 100000);
    INSERT INTO django_pgqueue_job (task) SELECT 'shop.tasks.nothing' FROM generate_series(1, 100);
    ANALYZE django_pgqueue_job
"""
ARTICLES_INDEX = "CREATE INDEX jobs_expired ON django_pgqueue_job (lease_until, id) WHERE state = 'running'"


def run(statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_the_combined_claim_walks_the_history_and_the_separate_ones_do_not():
    """ "check whether the planner uses the partial indexes for this combined claim": it does not.

    The article's own index is given to it. "Examine separate claim paths for ready and expired jobs": these.

    Report 70.
    """
    run(
        "TRUNCATE django_pgqueue_job CASCADE"
    )  # other tests only delete: their dead rows are still in the indexes
    with transaction.atomic():
        run(HISTORY)
        run(ARTICLES_INDEX)
        combined = explain(lambda: run(ARTICLES_CLAIM), using="default")
        ready = explain(lambda: leases.claim(worker="w", queues=["default"]), using="default")
        expired = explain(lambda: leases.reclaim(worker="w"), using="default")
        transaction.set_rollback(True)

    assert combined.rows == ready.rows == 1
    assert expired.rows == 0
    assert not {"jobs_expired", "pgqueue_job_ready", "pgqueue_job_running"} & combined.indexes
    assert combined.buffers > 1000
    assert "pgqueue_job_ready" in ready.indexes
    assert ready.buffers <= 30
    assert "pgqueue_job_running" in expired.indexes | ready.indexes
    assert expired.buffers <= 10

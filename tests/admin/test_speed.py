"""The pages of a queue with two hundred thousand jobs."""

import time
from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

JOBS = "/admin/django_pgqueue/job/"
COUNT = 200_000


@pytest.fixture
def large_queue(db: None) -> Iterator[None]:
    """Fill the tables with one statement each."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO django_pgqueue_job
                (task, queue, state, run_after, finished_at, generation, attempts, worker_ids)
            SELECT 'shop.tasks.t' || mod(i, 5), 'queue-' || mod(i, 7), s.state, statement_timestamp(),
                   CASE WHEN s.state IN ('done', 'failed') THEN statement_timestamp() END, 1, 1, ARRAY['box:1:a']
            FROM generate_series(1, %s) AS i,
                 LATERAL (SELECT CASE mod(i, 100) WHEN 0 THEN 'failed' WHEN 1 THEN 'ready' WHEN 2 THEN 'scheduled'
                                 ELSE 'done' END) AS s (state)
            """,
            [COUNT],
        )
        cursor.execute(
            "INSERT INTO django_pgqueue_rejection (job_id, generation, action, verdict, worker, seen_state)"
            " SELECT id, 1, 'complete', 'superseded', 'w', 'done' FROM django_pgqueue_job WHERE mod(id, 20) = 0"
        )
        cursor.execute("ANALYZE django_pgqueue_job, django_pgqueue_rejection")
    yield


def buffers_of(statements: list[str]) -> int:
    """Return how many pages the queries touch, found in memory or not; unlike seconds, that repeats beside others."""
    buffers = 0
    for statement in statements:
        if statement.lstrip().upper().startswith(("SELECT", "WITH")):
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.replace('%', '%%')}", [])
                (answer,) = cursor.fetchone()[0]
            plan = answer["Plan"]
            buffers += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return buffers


def test_pages_of_two_hundred_thousand_jobs_cost_little_of_the_table(boss: Client, large_queue: None) -> None:
    """Report 106."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT min(id), max(id) FROM django_pgqueue_job")
        first, last = cursor.fetchone()
    boss.get(JOBS)  # compiles the templates
    cost: dict[str, int] = {}
    for query in (
        "",
        "?p=200",
        "?state=failed",
        "?state=ready",
        "?state=scheduled&queue=nowhere",
        "?state=running",
        "?state=expired",
        "?queue=queue-3",
        "?queue=nowhere",
        f"?q={first}",
        "?q=t3",
        "?q=nowhere",
        f"?before={first + 1000}",
        f"?before={last - 1000}&state=failed",
        f"{last}/change/",
    ):
        with CaptureQueriesContext(connection) as captured:
            began = time.process_time()
            assert boss.get(JOBS + query).status_code == 200
            taken = time.process_time() - began
        assert taken < 1, query
        assert len(captured) <= 9, query
        cost[query] = buffers_of([each["sql"] for each in captured.captured_queries])
    # A filter that finds little looks through LOOKED_THROUGH rows at most, by their ids; a list without one at its own.
    assert max(cost.values()) <= 20_000, cost
    assert max(cost[query] for query in ("", "?p=200", "?state=running", f"?q={first}")) <= 1_000, cost

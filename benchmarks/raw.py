"""python -m benchmarks.raw BATCH: a loop of plain statements that claims and completes whatever is ready.

With a batch of 1 a claim and a completion, a commit each; else "complete the last batch and claim the next", one
commit. psycopg as it comes, so the statements are prepared after a few rounds. The times of a job's start, which
this project's claim also writes, are not written.
"""

import os
import sys

import psycopg

CLAIM = """
    WITH candidate AS MATERIALIZED (
        SELECT id FROM django_pgqueue_job WHERE state = 'ready' AND queue = 'default'
        ORDER BY (-priority), id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    )
    UPDATE django_pgqueue_job AS j
    SET state = 'running', generation = generation + 1, attempts = attempts + 1,
        lease_until = clock_timestamp() + interval '30 seconds', worker_ids = worker_ids || %(worker)s::text
    FROM candidate WHERE j.id = candidate.id
    RETURNING j.id, j.generation, j.task, j.payload
"""
COMPLETE_ONE = """
    UPDATE django_pgqueue_job SET state = 'done', lease_until = NULL, finished_at = clock_timestamp()
    WHERE id = %s AND generation = %s AND state = 'running'
"""
COMPLETE = """
    UPDATE django_pgqueue_job AS j SET state = 'done', lease_until = NULL, finished_at = clock_timestamp()
    FROM unnest(%(ids)s::bigint[], %(generations)s::bigint[]) AS e (id, generation)
    WHERE j.id = e.id AND j.generation = e.generation AND j.id = ANY (%(ids)s::bigint[]) AND j.state = 'running'
"""


def one_by_one(session, given):
    """Claim 1, commit, complete 1, commit."""
    while rows := session.execute(CLAIM, given).fetchall():
        session.execute(COMPLETE_ONE, rows[0][:2])


def in_batches(session, given):
    """Complete and claim a batch in one transaction, again and again."""
    rows = []
    while True:
        with session.transaction():
            if rows:
                held = {"ids": [row[0] for row in rows], "generations": [row[1] for row in rows]}
                session.execute(COMPLETE, held)
            rows = session.execute(CLAIM, given).fetchall()
        if not rows:
            return


def main(batch):
    """Work until nothing is ready."""
    given = {"limit": batch, "worker": f"raw-{os.getpid()}-0123456789abcdef"}
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as session:
        (one_by_one if batch == 1 else in_batches)(session, given)


main(int(sys.argv[1]))

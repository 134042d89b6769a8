"""What every worker does on its own clock."""

from __future__ import annotations

from ..states import LAST_GENERATION
from .claiming import NOT_HELD

# Expired jobs with nothing left to try: out of attempts (or of generations), or cancellation was requested.
# Index and locks as RECLAIM.
EXHAUST = f"""
    WITH spent AS MATERIALIZED (
        SELECT j.id, j.generation, COALESCE(j.worker_ids[cardinality(j.worker_ids)], '') AS worker, j.lease_until,
               j.cancel_requested_at IS NOT NULL AS cancelled,
               j.attempts, j.attempts >= j.max_attempts AS tried
        FROM django_pgqueue_job AS j
        WHERE j.state = 'running' AND j.lease_until < statement_timestamp()
          AND (j.attempts >= j.max_attempts OR j.cancel_requested_at IS NOT NULL
               OR j.generation >= {LAST_GENERATION}) {NOT_HELD}
        ORDER BY j.id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ), lost AS (
        INSERT INTO django_pgqueue_failure (job_id, generation, kind, worker, exception_class, message, traceback)
        SELECT id, generation, 'lease_expired', worker, '',
               'The lease expired at ' || lease_until ||
               CASE WHEN cancelled THEN '; cancellation had been requested.'
                    WHEN NOT tried THEN '; its generation is the last, so it cannot be claimed again.'
                    ELSE '; this was the last of ' || attempts || ' attempts.' END, ''
        FROM spent
    )
    UPDATE django_pgqueue_job AS j
    SET state = CASE WHEN spent.cancelled THEN 'cancelled' ELSE 'failed' END,
        lease_until = NULL, finished_at = clock_timestamp()
    FROM spent WHERE j.id = spent.id
    RETURNING j.id, j.generation, j.state, j.task, j.queue, j.backend
"""

# Due scheduled jobs become ready. Index: pgqueue_job_scheduled. SKIP LOCKED: several workers share the work.
PROMOTE = """
    WITH due AS MATERIALIZED (
        SELECT id FROM django_pgqueue_job
        WHERE state = 'scheduled' AND run_after <= statement_timestamp()
        ORDER BY run_after, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    )
    UPDATE django_pgqueue_job AS j SET state = 'ready' FROM due WHERE j.id = due.id
    RETURNING j.queue
"""

# The first entry of pgqueue_job_scheduled.
NEXT_DUE = """
    SELECT extract(epoch FROM run_after - clock_timestamp()) FROM django_pgqueue_job
    WHERE state = 'scheduled' ORDER BY run_after, id LIMIT 1
"""

# Deletes what has been kept long enough, with its records, from one page of the primary key. No index on
# finished_at: it would cost every job more than this walk does. Locks only doomed rows, SKIP LOCKED, in id order.
# Returns how many were deleted, the last id of the page and its size, and the enqueueing of its last job.
PRUNE = """
    WITH page AS MATERIALIZED (
        SELECT id, state, finished_at, enqueued_at FROM django_pgqueue_job
        WHERE id > %(after)s ORDER BY id LIMIT %(limit)s
    ), doomed AS MATERIALIZED (
        SELECT j.id FROM django_pgqueue_job AS j
        WHERE j.id = ANY (ARRAY(
                SELECT id FROM page
                WHERE state = 'done' AND finished_at < statement_timestamp() - %(keep_done)s::interval
                   OR state IN ('failed', 'cancelled')
                      AND finished_at < statement_timestamp() - %(keep_failed)s::interval))
          AND j.state IN ('done', 'failed', 'cancelled')
        ORDER BY j.id FOR UPDATE SKIP LOCKED
    ), failures AS (DELETE FROM django_pgqueue_failure WHERE job_id IN (SELECT id FROM doomed)),
       effects AS (DELETE FROM django_pgqueue_effect WHERE job_id IN (SELECT id FROM doomed)),
       rejections AS (DELETE FROM django_pgqueue_rejection WHERE job_id IN (SELECT id FROM doomed)),
       jobs AS (DELETE FROM django_pgqueue_job WHERE id IN (SELECT id FROM doomed) RETURNING id)
    SELECT (SELECT count(*) FROM jobs), (SELECT max(id) FROM page), (SELECT count(*) FROM page),
           (SELECT max(enqueued_at) FROM page)
           < statement_timestamp() - LEAST(%(keep_done)s::interval, %(keep_failed)s::interval)
"""

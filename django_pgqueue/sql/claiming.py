"""To take jobs, and to keep them."""

from __future__ import annotations

from ..states import LAST_GENERATION

# As Python can hold it: one row that plain SQL gave an infinite time must not stop every claim.
_TIMES = ", ".join(
    f"GREATEST(LEAST({column}, '9999-12-30 00:00Z'), '0001-01-02 00:00Z'::timestamptz)"
    for column in ("j.enqueued_at", "j.started_at", "j.last_attempted_at")
)
# The fields of a Lease, in their order.
_COLUMNS = f"""j.id, j.generation, j.attempts, j.max_attempts, j.task, j.queue, j.priority, j.backend,
              j.payload::text, j.worker_ids, {_TIMES}"""
_TAKE = """
    UPDATE django_pgqueue_job AS j
    SET state = 'running', generation = j.generation + 1, attempts = LEAST(j.attempts, 2147483646) + 1,
        lease_until = clock_timestamp() + %(lease)s::interval, worker_ids = j.worker_ids || %(worker)s::text,
        started_at = COALESCE(j.started_at, statement_timestamp()), last_attempted_at = statement_timestamp()
    WHERE j.id = ANY (ARRAY(SELECT id FROM candidate))
"""

# One statement decides and changes. {candidates} is JobQuerySet.candidates(), compiled by the ORM; it stands in
# a LATERAL so that each queue is one walk down pgqueue_job_ready and exactly %(limit)s rows are locked. MATERIALIZED,
# because a planner with stale statistics may otherwise run the sub-select once per row and claim more; and an array,
# not a join, so that no plan made for another number of rows reads the table.
# The position after which to look spares the walk over what was claimed before and, under somebody's old snapshot,
# cannot be vacuumed. Locks: the claimed rows, SKIP LOCKED, held until the claim's commit.
CLAIM = f"""
    WITH candidate AS MATERIALIZED (
        SELECT picked.id
        FROM unnest(%(queues)s::text[], %(after_priorities)s::smallint[], %(after_ids)s::bigint[])
            AS wanted (queue, negated_priority, id)
        CROSS JOIN LATERAL ({{candidates}} LIMIT %(limit)s) AS picked (id)
        LIMIT %(limit)s
    )
    {_TAKE} RETURNING {_COLUMNS}
"""

NOT_HELD = """
          AND (j.id, j.generation) NOT IN (SELECT * FROM unnest(%(held_ids)s::bigint[], %(held_generations)s::bigint[]))
"""

# Reads the running set by pgqueue_job_running; at a low rate, because lease_until must stay out of every index
# to keep heartbeats HOT. The lost attempt becomes a failure in the same statement. SKIP LOCKED: a row that its
# owner is just renewing or ending is not expired. What the caller holds itself is left to its own heartbeat: after a
# pause of the whole process its next renewal still finds the generation unchanged.
RECLAIM = f"""
    WITH candidate AS MATERIALIZED (
        SELECT j.id, j.generation, COALESCE(j.worker_ids[cardinality(j.worker_ids)], '') AS worker, j.lease_until
        FROM django_pgqueue_job AS j
        WHERE j.state = 'running' AND j.lease_until < statement_timestamp() AND j.attempts < j.max_attempts
          AND j.cancel_requested_at IS NULL AND j.generation < {LAST_GENERATION}
          AND (%(queues)s::text[] IS NULL OR j.queue = ANY (%(queues)s::text[]))
          AND NOT j.queue = ANY (%(excluded)s::text[]) {NOT_HELD}
        ORDER BY j.id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ), lost AS (
        INSERT INTO django_pgqueue_failure (job_id, generation, kind, worker, exception_class, message, traceback)
        SELECT id, generation, 'lease_expired', worker, '',
               'The lease expired at ' || lease_until || '; the job was claimed again.', '' FROM candidate
    )
    {_TAKE} RETURNING {_COLUMNS}
"""

# A loose index scan: one probe of pgqueue_job_ready per queue, instead of DISTINCT over every ready row.
READY_QUEUES = """
    WITH RECURSIVE names AS (
        (SELECT queue FROM django_pgqueue_job WHERE state = 'ready' ORDER BY queue LIMIT 1)
        UNION ALL
        SELECT (SELECT j.queue FROM django_pgqueue_job AS j
                WHERE j.state = 'ready' AND j.queue > names.queue ORDER BY j.queue LIMIT 1)
        FROM names WHERE names.queue IS NOT NULL
    )
    SELECT queue FROM names WHERE queue IS NOT NULL
"""

# Pushes leases ahead: exactly the (id, generation) pairs given. Never waits: the job's own fence may hold its row.
# A HOT update, because no index contains lease_until. Walks and lock order as END.
RENEW = """
    WITH held AS MATERIALIZED (
        SELECT j.id FROM django_pgqueue_job AS j
        JOIN unnest(%(ids)s::bigint[], %(generations)s::bigint[], %(stricts)s::bool[])
            AS w (id, generation, strict) ON w.id = j.id AND w.generation = j.generation
        WHERE j.id = ANY (%(ids)s::bigint[]) AND j.state = 'running'
          AND (NOT w.strict OR j.lease_until > clock_timestamp())
        ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED
    )
    UPDATE django_pgqueue_job AS j SET lease_until = clock_timestamp() + w.lease
    FROM unnest(%(ids)s::bigint[], %(generations)s::bigint[], %(leases)s::interval[]) AS w (id, generation, lease)
    WHERE j.id = ANY (ARRAY(SELECT id FROM held)) AND j.state = 'running' AND w.id = j.id
      AND w.generation = j.generation
    RETURNING j.id, j.generation, j.cancel_requested_at IS NOT NULL
"""

# Running jobs whose present generation belongs to this worker: among them claims whose reply was lost. Index:
# pgqueue_job_running; only after a failed claim. No lock: nobody else may touch a live lease.
ORPHANS = f"""
    SELECT {_COLUMNS}
    FROM django_pgqueue_job AS j
    WHERE j.state = 'running' AND j.worker_ids[cardinality(j.worker_ids)] = %(worker)s
    ORDER BY j.id
"""

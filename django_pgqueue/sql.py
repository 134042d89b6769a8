"""The queue's raw statements: each with why the ORM cannot say it, its index and its locks.

Rules that hold for all: times are written with clock_timestamp() and compared with statement_timestamp()
(clock_timestamp() is volatile and cannot be an index condition; now() is the transaction's start and would
shorten leases). State names are literals, so that the partial indexes are provable under any kind of plan.
Names are unqualified: the search_path decides. A batch takes its row locks in id order, or skips locked
rows, or both.
"""

from __future__ import annotations

_STATE = "CASE WHEN due.at > statement_timestamp() THEN 'scheduled' ELSE 'ready' END"
_DUE = """(SELECT COALESCE(%(run_after)s::timestamptz, statement_timestamp() + %(delay)s::interval,
                          statement_timestamp())) AS due (at)"""
_VALUES = f"""
    INSERT INTO django_pgqueue_job (task, payload, queue, priority, state, run_after, max_attempts, unique_key, backend)
    SELECT %(task)s, %(payload)s::jsonb, %(queue)s, %(priority)s, {_STATE}, due.at, %(max_attempts)s,
           %(unique_key)s, %(backend)s
    FROM {_DUE}
"""
_RETURNING_NEW = "RETURNING id, state, enqueued_at"

# Raw because the state depends on the database's clock; a job without a time is ready. No lock but its own row.
ENQUEUE = f"{_VALUES} {_RETURNING_NEW}"
ENQUEUE_NOW = f"""
    INSERT INTO django_pgqueue_job (task, payload, queue, priority, max_attempts, backend)
    VALUES (%(task)s, %(payload)s::jsonb, %(queue)s, %(priority)s, %(max_attempts)s, %(backend)s) {_RETURNING_NEW}
"""

# The same for a job with a unique key: no row if a live job holds the key. Waits for a transaction that has
# inserted the key and not yet ended. Index: pgqueue_job_unique_key.
ENQUEUE_UNIQUE = f"""{_VALUES}
    ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND state IN ('scheduled', 'ready', 'running')
    DO NOTHING {_RETURNING_NEW}
"""

# Many jobs that differ only in their arguments: COPY, which returns no ids, so they are taken from the sequence
# beforehand (USAGE on it is needed, which the table's owner has). No lock.
MANY_BEGIN = f"SELECT {_STATE}, due.at::text, pg_get_serial_sequence('django_pgqueue_job', 'id') FROM {_DUE}"
MANY_IDS = "SELECT nextval(%(sequence)s::regclass) FROM generate_series(1, %(count)s)"
MANY_COPY = """
    COPY django_pgqueue_job (id, payload, task, queue, priority, state, run_after, max_attempts, backend) FROM STDIN
"""

# As Python can hold it: one row that plain SQL gave an infinite time must not stop every claim.
_TIMES = ", ".join(
    f"GREATEST(LEAST({column}, '9999-12-30 00:00Z'), '0001-01-02 00:00Z'::timestamptz)"
    for column in ("j.enqueued_at", "j.started_at", "j.last_attempted_at")
)
_CLAIMED = f"""
    RETURNING j.id, j.generation, j.attempts, j.max_attempts, j.task, j.queue, j.priority, j.backend,
              j.payload::text, j.worker_ids, {_TIMES}
"""
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
    {_TAKE} {_CLAIMED}
"""

_NOT_HELD = """
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
          AND j.cancel_requested_at IS NULL AND j.generation < 9223372036854775806
          AND (%(queues)s::text[] IS NULL OR j.queue = ANY (%(queues)s::text[]))
          AND NOT j.queue = ANY (%(excluded)s::text[]) {_NOT_HELD}
        ORDER BY j.id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ), lost AS (
        INSERT INTO django_pgqueue_failure (job_id, generation, kind, worker, exception_class, message, traceback)
        SELECT id, generation, 'lease_expired', worker, '',
               'The lease expired at ' || lease_until || '; the job was claimed again.', '' FROM candidate
    )
    {_TAKE} {_CLAIMED}
"""

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
               OR j.generation >= 9223372036854775806) {_NOT_HELD}
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

_ENDS_AS = """CASE WHEN e.state NOT IN ('ready', 'scheduled') THEN e.state
                     WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled'
                     WHEN j.attempts - e.gives_back::int >= j.max_attempts THEN 'failed'
                     ELSE e.state END"""

# Ends each (id, generation) as asked, if that generation still owns its job. Locks in id order, then changes what is
# locked: `j.id = ANY` in both parts, so that each is one walk down an index for the whole batch (pgqueue_job_running or
# the primary key). {wait} is '' (wait for a locked row, as a fence must) or 'SKIP LOCKED' (a batch of a worker must not
# stand behind one row). Strict fencing is asked again after the wait: the lease may have run out in it. A job whose
# cancellation was requested ends as cancelled instead of waiting again, and one without attempts left as failed.
# {endings} is one of the two below: what most batches consist of, jobs that are done and returned nothing, needs
# fewer parameters, and the planner strikes out the rest.
END = f"""
    WITH ending (id, generation, state, strict, gives_back, delay, result) AS {{endings}}, held AS MATERIALIZED (
        SELECT j.id
        FROM django_pgqueue_job AS j JOIN ending AS e ON e.id = j.id AND e.generation = j.generation
        WHERE j.id = ANY (%(ids)s::bigint[]) AND j.state = 'running'
          AND (NOT e.strict OR j.lease_until > clock_timestamp())
        ORDER BY j.id FOR UPDATE OF j {{wait}}
    )
    UPDATE django_pgqueue_job AS j
    SET state = {_ENDS_AS}, lease_until = NULL,
        attempts = GREATEST(j.attempts - e.gives_back::int, 0),
        run_after = CASE {_ENDS_AS} WHEN 'scheduled' THEN clock_timestamp() + e.delay ELSE j.run_after END,
        finished_at = CASE WHEN {_ENDS_AS} IN ('ready', 'scheduled') THEN NULL ELSE clock_timestamp() END,
        result = e.result::jsonb
    FROM ending AS e
    WHERE j.id = ANY (ARRAY(SELECT id FROM held)) AND j.state = 'running' AND e.id = j.id
      AND e.generation = j.generation AND (NOT e.strict OR j.lease_until > clock_timestamp())
    RETURNING j.id, j.generation, j.state, j.finished_at
"""

ENDINGS = """MATERIALIZED (
        SELECT * FROM unnest(%(ids)s::bigint[], %(generations)s::bigint[], %(states)s::text[], %(stricts)s::bool[],
                             %(gives_back)s::bool[], %(delays)s::interval[], %(results)s::text[])
        )"""
ENDINGS_DONE = """NOT MATERIALIZED (
        SELECT id, generation, 'done'::text, false, false, NULL::interval, NULL::text
        FROM unnest(%(ids)s::bigint[], %(generations)s::bigint[]) AS e (id, generation))"""

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

# What the rows of refused writes say now, and as what the writer's own generation is known to have failed. No lock.
# Primary key of the jobs, foreign key of the failures.
OBSERVE = """
    SELECT asked.id, asked.generation, j.generation, j.state, j.lease_until, j.last_attempted_at, j.finished_at,
           clock_timestamp(),
           (SELECT f.kind FROM django_pgqueue_failure AS f
            WHERE f.job_id = j.id AND f.generation = asked.generation ORDER BY f.id DESC LIMIT 1)
    FROM unnest(%(ids)s::bigint[], %(generations)s::bigint[]) AS asked (id, generation)
    JOIN django_pgqueue_job AS j ON j.id = asked.id
    WHERE j.id = ANY (%(ids)s::bigint[])
"""

# Running jobs whose present generation belongs to this worker: among them claims whose reply was lost. Index:
# pgqueue_job_running; only after a failed claim. No lock: nobody else may touch a live lease.
ORPHANS = f"""
    SELECT j.id, j.generation, j.attempts, j.max_attempts, j.task, j.queue, j.priority, j.backend,
           j.payload::text, j.worker_ids, {_TIMES}
    FROM django_pgqueue_job AS j
    WHERE j.state = 'running' AND j.worker_ids[cardinality(j.worker_ids)] = %(worker)s
    ORDER BY j.id
"""

# The operator's transitions: one row each, decided on the locked row. Primary key.
CANCEL = """
    UPDATE django_pgqueue_job
    SET state = CASE WHEN state = 'running' THEN state ELSE 'cancelled' END,
        cancel_requested_at = COALESCE(cancel_requested_at, clock_timestamp()),
        finished_at = CASE WHEN state = 'running' THEN NULL ELSE clock_timestamp() END
    WHERE id = %(id)s AND state IN ('scheduled', 'ready', 'running')
    RETURNING state
"""
RETRY = """
    UPDATE django_pgqueue_job
    SET state = 'ready', attempts = 0, run_after = statement_timestamp(), finished_at = NULL,
        cancel_requested_at = NULL, result = NULL
    WHERE id = %(id)s AND state IN ('done', 'failed', 'cancelled')
    RETURNING state
"""
RUN_NOW = """
    UPDATE django_pgqueue_job SET state = 'ready', run_after = statement_timestamp()
    WHERE id = %(id)s AND (state = 'scheduled' OR state = 'ready' AND run_after > statement_timestamp())
    RETURNING state
"""

# The worker's own row; written at the heartbeat's rate. Primary key.
SEEN = """
    INSERT INTO django_pgqueue_worker (id, host, pid, queues, concurrency, running, draining)
    VALUES (%(id)s, %(host)s, %(pid)s, %(queues)s, %(concurrency)s, %(running)s, %(draining)s)
    ON CONFLICT (id) DO UPDATE
    SET seen_at = statement_timestamp(), running = EXCLUDED.running, draining = EXCLUDED.draining
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

# Rows of processes that have not been seen for long. A handful of rows.
PRUNE_WORKERS = """
    DELETE FROM django_pgqueue_worker WHERE seen_at < statement_timestamp() - interval '1 day'
"""

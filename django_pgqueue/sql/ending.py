"""Endings of leases, and what the row says of one that was refused."""

from __future__ import annotations

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

"""Jobs in."""

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

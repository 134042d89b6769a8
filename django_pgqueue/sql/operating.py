"""The operator's transitions: one row each, decided on the locked row. Primary key."""

from __future__ import annotations

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

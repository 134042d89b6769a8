"""The workers' own rows, which are for people only."""

from __future__ import annotations

# The worker's own row; written at the heartbeat's rate. Primary key.
SEEN = """
    INSERT INTO django_pgqueue_worker (id, host, pid, queues, concurrency, running, draining)
    VALUES (%(id)s, %(host)s, %(pid)s, %(queues)s, %(concurrency)s, %(running)s, %(draining)s)
    ON CONFLICT (id) DO UPDATE
    SET seen_at = statement_timestamp(), running = EXCLUDED.running, draining = EXCLUDED.draining
"""

# Rows of processes that have not been seen for long. A handful of rows.
PRUNE_WORKERS = """
    DELETE FROM django_pgqueue_worker WHERE seen_at < statement_timestamp() - interval '1 day'
"""

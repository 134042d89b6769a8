"""Tables that are already full of other rows."""

from __future__ import annotations

from .server import connect

ROWS = """
    INSERT INTO django_pgqueue_job (task, payload, state, run_after, generation, attempts, worker_ids,
                                    started_at, last_attempted_at, finished_at)
    SELECT 'benchmarks.tasks.noop',
           jsonb_build_object('args', jsonb_build_array(repeat('x', 200)), 'kwargs', '{}'::jsonb),
           %(state)s, now() + CASE %(state)s WHEN 'scheduled' THEN interval '30 days' ELSE interval '0' END,
           done::int, done::int, CASE WHEN done THEN ARRAY['someone-1-0123abcd'] ELSE '{}'::text[] END,
           CASE WHEN done THEN now() END, CASE WHEN done THEN now() END, CASE WHEN done THEN now() END
    FROM generate_series(1, %(count)s), (SELECT %(state)s = 'done') AS of (done)
"""


def insert(url: str, counts: dict[str, int]) -> None:
    """Insert so many rows of each state (done, ready, scheduled), and let VACUUM settle them."""
    with connect(url) as session:
        for state, count in counts.items():
            session.execute(ROWS, {"state": state, "count": count})
        session.execute("VACUUM (ANALYZE, INDEX_CLEANUP ON) django_pgqueue_job")
        session.execute("CHECKPOINT")

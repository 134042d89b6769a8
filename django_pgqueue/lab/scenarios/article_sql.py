"""The two articles' own little tables and statements, word for word but for the length of the lease."""

from __future__ import annotations

from ..session import Session

# "PostgreSQL job queues with SKIP LOCKED and expiring leases": schema.sql
GENERATION_SCHEMA = """
CREATE TABLE jobs (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  state text NOT NULL DEFAULT 'ready' CHECK (state IN ('ready','running','done')),
  generation bigint NOT NULL DEFAULT 0,
  lease_until timestamptz,
  payload jsonb NOT NULL
);
CREATE INDEX jobs_ready ON jobs (id) WHERE state='ready';
CREATE INDEX jobs_expired ON jobs (lease_until, id) WHERE state='running';
"""
TWO_JOBS = """INSERT INTO jobs(payload) VALUES ('{"order_id":"ord-1"}'), ('{"order_id":"ord-2"}')"""

# claim.sql
GENERATION_CLAIM = """
WITH candidate AS (
  SELECT id FROM jobs
  WHERE state='ready' OR (state='running' AND lease_until<clock_timestamp())
  ORDER BY id
  FOR UPDATE SKIP LOCKED
  LIMIT 1
)
UPDATE jobs AS j
SET state='running', generation=j.generation+1,
    lease_until=clock_timestamp()+interval '30 seconds'
FROM candidate
WHERE j.id=candidate.id
RETURNING j.id,j.generation
"""

EXPIRE = "UPDATE jobs SET lease_until=clock_timestamp()-interval '1 second' WHERE id=%s"

GENERATION_COMPLETE = """
WITH completed AS (
  UPDATE jobs SET state='done'
  WHERE id=%s AND state='running' AND generation=%s
    AND lease_until>clock_timestamp()
  RETURNING id
) SELECT count(*) FROM completed
"""

# "Your SKIP LOCKED Queue Can Run a Job Twice": schema.sql
ATTEMPT_SCHEMA = """
CREATE TABLE jobs (
  id          bigserial PRIMARY KEY,
  payload     jsonb NOT NULL DEFAULT '{}',
  status      text NOT NULL DEFAULT 'queued',
  attempt     int NOT NULL DEFAULT 0,
  locked_by   text,
  lease_until timestamptz
);
CREATE TABLE side_effects (
  job_id  bigint NOT NULL,
  attempt int NOT NULL,
  worker  text NOT NULL,
  at      timestamptz NOT NULL DEFAULT now()
);
"""


def set_up(session: Session, schema: str) -> None:
    """Make one article's tables in the disposable database, in place of the other's."""
    session.quietly("DROP TABLE IF EXISTS jobs, side_effects")
    for statement in schema.split(";"):
        if statement.strip():
            session.run(statement)

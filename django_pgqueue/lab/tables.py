"""The lab's own tables in the disposable database: what jobs did, and every change of a job as the server saw it."""

from __future__ import annotations

import psycopg

CREATE = """
CREATE TABLE lab_effects (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id bigint NOT NULL,
    generation bigint NOT NULL,
    kind text NOT NULL,
    worker text NOT NULL,
    owner bigint,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE lab_mails (key text PRIMARY KEY, sent int NOT NULL DEFAULT 1);
CREATE TABLE lab_marks (job_id bigint NOT NULL, generation bigint NOT NULL, point text NOT NULL);
CREATE TABLE lab_gates (name text PRIMARY KEY);
CREATE TABLE lab_history (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id bigint NOT NULL,
    was text NOT NULL,
    state text NOT NULL,
    was_generation bigint NOT NULL,
    generation bigint NOT NULL,
    session text NOT NULL DEFAULT current_setting('application_name'),
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE FUNCTION lab_note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO lab_history (job_id, was, state, was_generation, generation)
    VALUES (NEW.id, OLD.state, NEW.state, OLD.generation, NEW.generation);
    RETURN NULL;
END $$;
CREATE TRIGGER lab_note_change AFTER UPDATE ON django_pgqueue_job FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state OR OLD.generation IS DISTINCT FROM NEW.generation)
    EXECUTE FUNCTION lab_note_change();

CREATE FUNCTION lab_note_owner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT generation INTO NEW.owner FROM django_pgqueue_job WHERE id = NEW.job_id;
    RETURN NEW;
END $$;
CREATE TRIGGER lab_note_owner BEFORE INSERT ON lab_effects FOR EACH ROW EXECUTE FUNCTION lab_note_owner();
"""

_ALL = """
    django_pgqueue_job, django_pgqueue_failure, django_pgqueue_effect, django_pgqueue_rejection, django_pgqueue_worker,
    lab_effects, lab_mails, lab_marks, lab_gates, lab_history
"""


def create(session: psycopg.Connection) -> None:
    """Create them, with the triggers that watch the queue's table."""
    with session.transaction():
        session.execute(CREATE)


def empty(session: psycopg.Connection) -> None:
    """Empty the queue's tables and the lab's, ids beginning with 1 again. Ends what still holds a lock on them."""
    session.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    session.execute(f"TRUNCATE {_ALL} RESTART IDENTITY")

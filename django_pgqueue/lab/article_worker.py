"""The second article's worker.py, with its fixes as flags: `article_worker.py NAME [--heartbeat] [--fence] [--key]`.

Run as a script in a process of its own. It knows nothing of the package: plain psycopg on the article's tables.
The time a job takes is not slept away: the job waits at gates that the lab opens.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

import psycopg

LEASE_SECONDS = 1.0
BEAT_SECONDS = 0.3
POLL_SECONDS = 0.1

CLAIM = """
UPDATE jobs
SET status = 'running',
    attempt = attempt + 1,
    locked_by = %(worker)s,
    lease_until = now() + %(lease)s::interval
WHERE id = (
  SELECT id FROM jobs
  WHERE status = 'queued'
     OR (status = 'running' AND lease_until < now())
  ORDER BY id
  LIMIT 1
  FOR UPDATE SKIP LOCKED
)
RETURNING id, attempt
"""
HEARTBEAT = """
UPDATE jobs
SET lease_until = now() + %(lease)s::interval
WHERE id = %(id)s AND attempt = %(attempt)s
  AND status = 'running'
"""
EFFECT = "INSERT INTO side_effects (job_id, attempt, worker) VALUES (%(id)s, %(attempt)s, %(worker)s)"
MAIL = (
    "INSERT INTO lab_mails (key) VALUES (%(key)s) ON CONFLICT (key) DO UPDATE SET sent = lab_mails.sent + 1"
)
UNFENCED = "UPDATE jobs SET status = 'done', locked_by = NULL, lease_until = NULL WHERE id = %(id)s"
FENCED = f"{UNFENCED} AND attempt = %(attempt)s AND status = 'running'"


class LeaseLost(Exception):
    """The job has moved on."""


def main(name: str, flags: set[str]) -> None:
    """Claim and run jobs until killed, or until the lab is gone."""
    lab = os.getppid()
    dsn = json.loads(os.environ["PGQUEUE_LAB_DSN"])
    conn = psycopg.connect(**dsn, application_name=f"article {name}", autocommit=True, prepare_threshold=None)
    while os.getppid() == lab:
        row = conn.execute(CLAIM, {"worker": name, "lease": f"{LEASE_SECONDS} seconds"}).fetchone()
        if row is None:
            threading.Event().wait(POLL_SECONDS)
            continue
        job = {"id": row[0], "attempt": row[1], "worker": name, "lease": f"{LEASE_SECONDS} seconds"}
        try:
            work(conn, job, dsn, flags)
        except LeaseLost:
            mark(conn, job, "lost")


def work(conn: psycopg.Connection, job: dict[str, Any], dsn: dict[str, Any], flags: set[str]) -> None:
    """Run one job: render, send the mail, finish."""
    stop, lost = threading.Event(), threading.Event()
    beat = threading.Thread(target=heartbeat, args=(job, dsn, stop, lost), daemon=True)
    if "--heartbeat" in flags:
        beat.start()
    try:
        pass_gate(conn, job, "render", lost)
        if lost.is_set():  # the last check before finishing; whatever comes now can still find a lease lost
            raise LeaseLost
        key = f"receipt-job-{job['id']}" if "--key" in flags else f"receipt-attempt-{job['attempt']}"
        conn.execute(MAIL, {"key": key})
        pass_gate(conn, job, "finish", None)
        finish(conn, job, "--fence" in flags)
        mark(conn, job, "finished")
    finally:
        stop.set()
        if beat.ident:
            beat.join()


def finish(conn: psycopg.Connection, job: dict[str, Any], fence: bool) -> None:
    """Have the effect and complete: blindly, or in one transaction that the attempt number guards."""
    if not fence:
        conn.execute(EFFECT, job)
        conn.execute(UNFENCED, job)
        return
    with conn.transaction():
        if conn.execute(FENCED, job).rowcount == 0:
            raise LeaseLost(job["id"])
        conn.execute(EFFECT, job)


def heartbeat(job: dict[str, Any], dsn: dict[str, Any], stop: threading.Event, lost: threading.Event) -> None:
    """Renew the lease while the job runs."""
    try:
        with psycopg.connect(**dsn, autocommit=True, prepare_threshold=None) as hb:
            while not stop.wait(BEAT_SECONDS):
                if hb.execute(HEARTBEAT, job).rowcount == 0:
                    break
    except psycopg.Error:
        pass
    if not stop.is_set():
        lost.set()


def mark(conn: psycopg.Connection, job: dict[str, Any], point: str) -> None:
    """Tell the lab where this attempt is."""
    conn.execute("INSERT INTO lab_marks VALUES (%s, %s, %s)", [job["id"], job["attempt"], point])


def pass_gate(
    conn: psycopg.Connection, job: dict[str, Any], point: str, lost: threading.Event | None
) -> None:
    """Wait until the lab lets this attempt pass the point, or the lease is known to be lost."""
    mark(conn, job, point)
    gate = f"{point} {job['attempt']}"
    while conn.execute("SELECT FROM lab_gates WHERE name = %s", [gate]).fetchone() is None:
        if lost is not None and lost.is_set():
            return
        threading.Event().wait(0.02)
        if os.getppid() == 1:
            sys.exit("the lab is gone")


if __name__ == "__main__":
    main(sys.argv[1], set(sys.argv[2:]))

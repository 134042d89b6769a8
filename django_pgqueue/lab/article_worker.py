"""A worker that lacks what its flags do not give it: `article_worker.py NAME [--heartbeat] [--fence] [--key]`.

After "Your SKIP LOCKED Queue Can Run a Job Twice. Heartbeats and Fencing Tokens Make It Safe", in this project's
words: each flag is one of that article's three fixes. Run as a script in a process of its own; it knows nothing of
the package. The time that a job takes is not slept away: the job waits at gates that the lab opens.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import psycopg

LEASE_SECONDS = 1.0
BEAT_SECONDS = 0.3
POLL_SECONDS = 0.1
LOOK_SECONDS = 0.02

CLAIM = """
UPDATE lab_article_job
SET state = 'running', attempt = attempt + 1, worker = %(worker)s,
    lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
WHERE id = (
    SELECT id FROM lab_article_job
    WHERE state = 'ready' OR state = 'running' AND lease_until < clock_timestamp()
    ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
)
RETURNING id, attempt
"""
RENEW = """
UPDATE lab_article_job SET lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
WHERE id = %(id)s AND attempt = %(attempt)s AND state = 'running'
"""
EFFECT = "INSERT INTO lab_article_effect (job_id, attempt, worker) VALUES (%(id)s, %(attempt)s, %(worker)s)"
UNFENCED = "UPDATE lab_article_job SET state = 'done', worker = NULL, lease_until = NULL WHERE id = %(id)s"
FENCED = f"{UNFENCED} AND attempt = %(attempt)s AND state = 'running'"
MAIL = "INSERT INTO lab_mails (key) VALUES (%s) ON CONFLICT (key) DO UPDATE SET sent = lab_mails.sent + 1"


class Superseded(Exception):
    """The job has moved on to a later attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One claim of one job."""

    id: int
    attempt: int
    worker: str
    lease: float


class Worker:
    """Claims jobs on a session of its own and runs them one by one."""

    def __init__(self, name: str, flags: set[str], database: dict[str, Any]) -> None:
        self._name, self._flags, self._database = name, flags, database
        self._session = self._connect(f"article {name}")

    def work(self) -> None:
        """Go on until killed, or until the lab is gone."""
        lab = os.getppid()
        while os.getppid() == lab:
            given = {"worker": self._name, "lease": LEASE_SECONDS}
            claimed = self._session.execute(CLAIM, given).fetchone()
            if claimed is None:
                threading.Event().wait(POLL_SECONDS)
                continue
            mine = Attempt(id=claimed[0], attempt=claimed[1], worker=self._name, lease=LEASE_SECONDS)
            try:
                self._run(mine)
            except Superseded:
                self._mark(mine, "lost")

    def _run(self, mine: Attempt) -> None:
        """Render, send the mail, finish."""
        with self._kept(mine) as lost:
            self._pass_gate(mine, "render", lost)
            # The last look before the end; whatever comes now can still find the lease lost.
            if lost.is_set():
                raise Superseded
            receipt = f"job-{mine.id}" if "--key" in self._flags else f"attempt-{mine.attempt}"
            self._session.execute(MAIL, [f"receipt-{receipt}"])
            self._pass_gate(mine, "finish")
            self._finish(mine)
            self._mark(mine, "finished")

    def _finish(self, mine: Attempt) -> None:
        """Have the effect and complete: blindly, or in one transaction that the attempt's number guards."""
        if "--fence" not in self._flags:
            self._session.execute(EFFECT, asdict(mine))
            self._session.execute(UNFENCED, asdict(mine))
            return
        with self._session.transaction():
            if not self._session.execute(FENCED, asdict(mine)).rowcount:
                raise Superseded
            self._session.execute(EFFECT, asdict(mine))

    @contextmanager
    def _kept(self, mine: Attempt) -> Iterator[threading.Event]:
        """Keep the lease while the block runs, if there is a heartbeat; the event tells that it is lost."""
        over, lost = threading.Event(), threading.Event()
        heart = threading.Thread(target=self._beat, args=(mine, over, lost), daemon=True)
        if "--heartbeat" in self._flags:
            heart.start()
        try:
            yield lost
        finally:
            over.set()
            if heart.ident is not None:
                heart.join()

    def _beat(self, mine: Attempt, over: threading.Event, lost: threading.Event) -> None:
        """Renew on a session of its own. A refused renewal and a lost session both count as a lost lease."""
        try:
            with self._connect(f"article {self._name} heartbeat") as session:
                renewed = True
                while renewed and not over.wait(BEAT_SECONDS):
                    renewed = session.execute(RENEW, asdict(mine)).rowcount == 1
        except psycopg.Error:
            renewed = False
        if not renewed:
            lost.set()

    def _mark(self, mine: Attempt, point: str) -> None:
        """Tell the lab where this attempt is."""
        self._session.execute("INSERT INTO lab_marks VALUES (%s, %s, %s)", [mine.id, mine.attempt, point])

    def _pass_gate(self, mine: Attempt, point: str, lost: threading.Event | None = None) -> None:
        """Wait until the lab lets this attempt pass the point, or the lease is known to be lost."""
        self._mark(mine, point)
        gate = [f"{point} {mine.attempt}"]
        while not self._session.execute("SELECT FROM lab_gates WHERE name = %s", gate).rowcount:
            if lost is not None and lost.is_set():
                return
            threading.Event().wait(LOOK_SECONDS)
            if os.getppid() == 1:
                sys.exit("the lab is gone")

    def _connect(self, application: str) -> psycopg.Connection[Any]:
        return psycopg.connect(
            **self._database, application_name=application, autocommit=True, prepare_threshold=None
        )


if __name__ == "__main__":
    Worker(sys.argv[1], set(sys.argv[2:]), json.loads(os.environ["PGQUEUE_LAB_DSN"])).work()

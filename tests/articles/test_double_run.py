"""The second article's story on the lab's two little tables: the double run, and what each fix mends.

Workers are two sessions; the lease is moved into the past instead of waited for.
"""

import threading
from datetime import timedelta

import psycopg
import pytest

from django_pgqueue import outcomes
from django_pgqueue.context import JobContext
from django_pgqueue.holding import Holding
from django_pgqueue.lab.article_worker import CLAIM, EFFECT, FENCED, RENEW, UNFENCED
from django_pgqueue.lab.scenarios.article_sql import ATTEMPT_SCHEMA, ONE_JOB
from django_pgqueue.lab.waiting import until
from tests.races.tools import PATIENCE, claim_one, new_job, new_jobs, only_rejection, reclaimed, row, session

pytestmark = pytest.mark.django_db(transaction=True)

SCHEMA = f"CREATE SCHEMA article; SET search_path = article; {ATTEMPT_SCHEMA} {ONE_JOB}"
EFFECT_ONCE = f"{EFFECT} ON CONFLICT (job_id) DO NOTHING"
ONE_EFFECT_PER_JOB = "ALTER TABLE lab_article_effect ADD CONSTRAINT one_effect_per_job UNIQUE (job_id)"


class LeaseLost(Exception):
    pass


class ArticlesWorker:
    """The lab's worker of that article, its steps taken one by one."""

    def __init__(self, name: str, conn: psycopg.Connection) -> None:
        conn.autocommit = True
        conn.execute("SET search_path = article")
        self.name, self.conn, self.args = name, conn, {}

    def claim(self, lease=3.0):
        claimed = self.conn.execute(CLAIM, {"worker": self.name, "lease": lease}).fetchone()
        if claimed is not None:
            self.args = {"id": claimed[0], "attempt": claimed[1], "worker": self.name, "lease": lease}
        return claimed

    def finish_unfenced(self):
        self.conn.execute(EFFECT, self.args)
        return self.conn.execute(UNFENCED, self.args).rowcount

    def finish_fenced(self):
        with self.conn.transaction():
            if self.conn.execute(FENCED, self.args).rowcount == 0:
                raise LeaseLost
            self.conn.execute(EFFECT, self.args)

    def beat(self):
        return self.conn.execute(RENEW, self.args).rowcount

    def send_mail(self):
        """An effect outside the worker's transaction, on a receiver that knows the key."""
        return self.conn.execute(EFFECT_ONCE, self.args).rowcount


@pytest.fixture
def tables():
    with session() as conn:
        conn.execute(SCHEMA)
        conn.commit()
        yield
        conn.rollback()
        conn.execute("DROP SCHEMA article CASCADE")
        conn.commit()


@pytest.fixture
def a(tables):
    with session("A") as conn:
        yield ArticlesWorker("A", conn)


@pytest.fixture
def b(tables):
    with session("B") as conn:
        yield ArticlesWorker("B", conn)


def the_lease_runs_out(worker):
    worker.conn.execute(
        "UPDATE lab_article_job SET lease_until = now() - interval '1 second' WHERE state = 'running'"
    )


def effects(worker):
    return worker.conn.execute("SELECT attempt, worker FROM lab_article_effect ORDER BY n").fetchall()


def status(worker):
    return worker.conn.execute("SELECT state, attempt, worker FROM lab_article_job").fetchone()


def test_without_a_fence_a_lease_that_expires_in_the_middle_of_a_job_gives_two_receipts(a, b):
    assert a.claim() == (1, 1)
    assert b.claim() is None
    the_lease_runs_out(b)
    assert b.claim() == (1, 2)

    assert a.finish_unfenced() == 1  # and the job is "done" although B owns it
    assert status(a) == ("done", 2, None)
    assert b.finish_unfenced() == 1
    assert effects(a) == [(1, "A"), (2, "B")]


def test_fix_1_a_heartbeat_keeps_a_job_of_four_leases_on_one_attempt(a, b):
    """A thread beats on a connection of its own while B polls; no row is ever handed over.

    Reports 16 and 20.
    """
    assert a.claim(0.6) == (1, 1)
    started = a.conn.execute("SELECT clock_timestamp()").fetchone()[0]
    stop, beats = threading.Event(), []

    def heartbeat():
        with session("A heartbeat") as conn:
            own = ArticlesWorker("A", conn)
            own.args = a.args
            while not stop.wait(0.1):
                beats.append(own.beat())

    thread = threading.Thread(target=heartbeat)
    thread.start()
    polls = []

    def four_leases_have_passed():
        polls.append(b.claim())
        now = b.conn.execute("SELECT clock_timestamp()").fetchone()[0]
        return now - started > timedelta(seconds=2.4)

    try:
        until(four_leases_have_passed, "four leases have passed", within=PATIENCE)
        a.finish_fenced()
    finally:
        stop.set()
        thread.join()
    assert set(polls) == {None}
    assert beats.count(1) >= 8
    assert effects(a) == [(1, "A")]


def test_fix_1_alone_a_worker_that_was_paused_still_gives_two_receipts(a, b):
    """No beat goes out of a frozen process; on waking, its last look at the flag may come too soon."""
    a.claim()
    the_lease_runs_out(b)
    b.claim()
    lost = threading.Event()  # the heartbeat thread has not yet woken: not set
    assert not lost.is_set()
    a.finish_unfenced()
    b.finish_unfenced()
    assert len(effects(a)) == 2
    assert a.beat() == 0  # it would have learnt of it now


def test_fix_1_a_heartbeat_of_an_old_attempt_touches_no_row(a, b):
    a.claim()
    the_lease_runs_out(b)
    b.claim()
    assert (a.beat(), b.beat()) == (0, 1)


def test_fix_2_the_fencing_token_refuses_the_late_completion_and_rolls_its_effect_back(a, b):
    a.claim()
    the_lease_runs_out(b)
    b.claim()
    with pytest.raises(LeaseLost):
        a.finish_fenced()
    assert effects(a) == []
    assert status(a) == ("running", 2, "B")
    b.finish_fenced()
    assert effects(a) == [(2, "B")]


def test_fix_2_a_completion_before_the_replacement_s_leaves_nothing_to_claim(a, b):
    a.claim()
    the_lease_runs_out(a)
    with a.conn.transaction():
        assert a.conn.execute(FENCED, a.args).rowcount == 1
        assert b.claim() is None  # skips the locked row
    assert b.claim() is None  # and now it is done


def test_fix_2_a_late_completion_that_nobody_reclaimed_is_accepted(a):
    a.claim()
    the_lease_runs_out(a)
    a.finish_fenced()
    assert effects(a) == [(1, "A")]


def test_fix_2_alone_does_not_undo_a_mail_that_has_already_left(a, b):
    """The mail goes out before finish(): the receiver knows nothing of the attempt column."""
    a.claim()
    the_lease_runs_out(b)
    b.claim()
    for worker in (a, b):
        worker.conn.execute(EFFECT, worker.args)  # its own commit, like a call to a mail service
    with pytest.raises(LeaseLost):
        a.finish_fenced()
    assert len(effects(a)) == 2


def test_fix_3_a_key_derived_from_the_job_lets_the_receiver_drop_the_duplicate(a, b):
    a.conn.execute(ONE_EFFECT_PER_JOB)
    a.claim()
    the_lease_runs_out(b)
    b.claim()
    assert (a.send_mail(), b.send_mail()) == (1, 0)
    assert effects(a) == [(1, "A")]


def test_fix_3_a_key_derived_from_the_attempt_drops_nothing(a, b):
    a.conn.execute("ALTER TABLE lab_article_effect ADD UNIQUE (job_id, attempt)")
    keyed = f"{EFFECT} ON CONFLICT (job_id, attempt) DO NOTHING"
    a.claim()
    the_lease_runs_out(b)
    b.claim()
    assert [worker.conn.execute(keyed, worker.args).rowcount for worker in (a, b)] == [1, 1]


def test_the_unfenced_double_run_cannot_happen_with_this_package():
    """The same story with Lease values: A's ending is refused and recorded, B's is the only one."""
    job_id = new_job(payload={"args": [42], "kwargs": {}})
    old = claim_one("A")
    newer = reclaimed(old, "B")
    assert outcomes.complete(old, "A's receipt") == "superseded"
    assert outcomes.complete(newer, "B's receipt") == "accepted"
    assert row(job_id).result == "B's receipt"
    assert only_rejection(job_id).worker == "A"


def test_the_idempotency_key_is_the_same_on_every_attempt_and_another_for_every_job():
    """Derived from the job, never from the attempt: Fix 3 through the job's context."""
    first, _ = new_jobs(2)
    held = [claim_one("A"), claim_one("A")]
    held.append(reclaimed(held[0]))
    given = {"sent_at": 0.0, "stopping": threading.Event(), "using": "default"}
    contexts = [JobContext(task_result=None, holding=Holding(lease, **given)) for lease in held]
    assert [context.generation for context in contexts] == [1, 1, 2]
    keys = [context.idempotency_key for context in contexts]
    assert keys[0] == keys[2] != keys[1]

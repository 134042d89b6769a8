"""The server itself: stopped, crashed, and replaced by its promoted standby. Only on servers of the lab's own."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta

from .. import invariants, tables
from ..processes import migrate
from ..scenario import Scenarios
from ..servers import Server
from ..stage import Stage
from ..target import Target
from ..waiting import pause

scenarios = Scenarios("failover")


@scenarios.add(
    "server-restart", "The server is stopped while a job runs and started again: the job is completed once"
)
def server_restart(stage: Stage) -> None:
    server = stage.need_server()
    stage.enqueue("outside", seconds=1.5)
    worker = stage.worker("A", lease=60)
    stage.until_reached(1)
    with ExitStack() as stack:
        stack.callback(server.start)
        server.stop()
        stage.record.event("the server is stopped (fast), and the job ends meanwhile")
        worker.wait_for_output("does not answer")
    stage.record.event("the server is started")
    stage.facts.reconnect()
    stage.until_state(1, "done", 1)
    stage.stop_workers()
    invariants.check(stage)


@scenarios.add("server-crash", "The server crashes three times under load: nothing is lost or done twice")
def server_crash(stage: Stage) -> None:
    server = stage.need_server()
    _load(stage)
    with ExitStack() as stack:
        stack.callback(server.start)
        for _ in range(3):
            pause(0.5 + stage.random.random())
            server.stop(immediately=True)
            stage.record.event("the server crashes (immediate stop), and is started again")
            server.start()
    stage.facts.reconnect()
    stage.until_all_ended(within=timedelta(minutes=1))
    stage.stop_workers()
    stage.check_value(
        "every job is done", "SELECT count(*) FROM django_pgqueue_job WHERE state = 'done'", 150
    )
    invariants.check(stage)


@scenarios.add(
    "failover", "The primary dies, its synchronous standby is promoted: what was committed is there"
)
def failover(stage: Stage) -> None:
    primary = stage.need_server().sibling("primary")
    with ExitStack() as stack:
        stack.callback(primary.close)
        primary.start()
        standby = primary.standby("standby")
        stack.callback(standby.close)
        standby.start()
        _follow(stage, primary)
        target = _database(stage, primary)
        both = target.but(
            host=f"{primary.sockets},{standby.sockets}", port="5432,5432", target_session_attrs="read-write"
        )
        stage.target = both
        _load(stage)
        stage.until_row(
            "some jobs are done", "SELECT count(*) >= 10 FROM django_pgqueue_job WHERE state = 'done'"
        )
        known = stage.facts.quietly("SELECT id FROM django_pgqueue_job WHERE state = 'done'")
        primary.stop(immediately=True)
        stage.record.event("the primary crashes")
        standby.promote()
        stage.record.event("the standby is promoted; the workers' DSN names both")
        stage.facts.reconnect()
        stage.until_all_ended(within=timedelta(minutes=1))
        stage.stop_workers()
        stage.check_value(
            "every job is done", "SELECT count(*) FROM django_pgqueue_job WHERE state = 'done'", 150
        )
        still = stage.facts.value(
            "SELECT count(*) FROM django_pgqueue_job WHERE state = 'done' AND id = ANY (%s)",
            [row[0] for row in known],
        )
        stage.check("every job that was seen done before is done", still == len(known), [still, len(known)])
        stage.record.figure("jobs done before the failover", len(known))
        invariants.check(stage)


def _load(stage: Stage) -> None:
    for task in ("plain", "fenced", "transactional"):
        stage.enqueue(task, 50, seconds=0.1)
    for letter in "AB":
        stage.worker(letter, concurrency=2)


def _follow(stage: Stage, primary: Server) -> None:
    """Make the primary wait for its standby at every commit."""
    session = stage.session("primary", primary.target())
    session.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
    session.quietly("SELECT pg_reload_conf()")
    stage.until(
        "the standby is synchronous",
        lambda: session.value("SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')"),
    )


def _database(stage: Stage, primary: Server) -> Target:
    session = stage.session("primary", primary.target())
    session.quietly("CREATE DATABASE lab")
    target = primary.target("lab")
    migrate(target, stage.folder)
    with target.connect() as made:
        tables.create(made)
    return target

"""`manage.py pgqueue_lab` end to end: what it prints, returns, writes, and leaves alone."""

import json
import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from django_pgqueue.lab.evidence import SCHEMA
from django_pgqueue.lab.scenarios import ALL
from tests.lab.runs import ROOT, Run, dsn, exists, lab_command

COMMITTED = ROOT / "docs" / "evidence" / "postgresql-18.json"
# Tables of the lab and of the queue, all of which the scenarios fill.
TAKEN = ["django_pgqueue_job", "lab_article_effect", "lab_article_job", "lab_effects"]
QUICK = "skip-locked,stale-completion,late-completion,stale-writes"


@pytest.fixture
def inhabited_database(server_url: str) -> Iterator[str]:
    """Give the address of a database that has tables of the names that the lab uses, with rows."""
    name = f"inhabited_{secrets.token_hex(4)}"
    parts = server_url.partition("?")
    with psycopg.connect(dsn(server_url, "postgres"), autocommit=True) as session:
        session.execute(f"CREATE DATABASE {name}")
        try:
            with psycopg.connect(dsn(server_url, name), autocommit=True) as inside:
                for table in TAKEN:
                    inside.execute(f"CREATE TABLE {table} AS SELECT 1 AS id, 'precious' AS word")
            yield f"{parts[0].rpartition('/')[0]}/{name}{parts[1]}{parts[2]}"
        finally:
            session.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_the_articles_scenarios_hold_and_leave_evidence(lab: Callable[..., Run], server_url: str) -> None:
    run = lab("--only", QUICK, "--seed", "7")
    assert run.code == 0, run.output
    assert "claim gets job 2 at generation 1" in run.output
    assert "4 passed, 0 failed, 0 skipped" in run.output
    assert run.evidence["verdict"] == "passed"
    assert [scenario["name"] for scenario in run.evidence["scenarios"]] == QUICK.split(",")
    assert not exists(server_url, run.evidence["volatile"]["database"])


def test_a_real_worker_and_the_proxy_settle_a_lost_reply(lab: Callable[..., Run]) -> None:
    run = lab("--only", "lost-claim-reply", "--no-listen")
    assert run.code == 0, run.output
    assert run.evidence["settings"]["listen"] is False


@pytest.mark.slow
def test_two_runs_differ_only_where_the_evidence_says_so(lab: Callable[..., Run]) -> None:
    first, second = (lab("--only", f"{QUICK},double-run", "--seed", "7") for _ in range(2))
    assert first.stable == second.stable
    assert first.evidence["volatile"] != second.evidence["volatile"]


def test_existing_tables_are_not_touched(lab: Callable[..., Run], inhabited_database: str) -> None:
    run = lab("--only", "skip-locked,late-completion,double-run", url=inhabited_database)
    assert run.code == 0, run.output
    with psycopg.connect(dsn(inhabited_database)) as session:
        tables = session.execute("SELECT relname FROM pg_stat_user_tables ORDER BY 1").fetchall()
        assert [name for (name,) in tables] == TAKEN
        for (name,) in tables:
            assert session.execute(f"SELECT * FROM {name}").fetchall() == [(1, "precious")]


def test_ctrl_c_is_a_failure_that_leaves_nothing_behind(tmp_path: Path, server_url: str) -> None:
    path = tmp_path / "evidence.json"
    with subprocess.Popen(
        lab_command("--step", "--only", "skip-locked", "--evidence", str(path)),
        env=dict(os.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:  # it waits for a key before the first statement
            if "CREATE TABLE lab_article_job" in line:
                break
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 130, rest
    evidence = json.loads(path.read_text())
    assert (evidence["verdict"], evidence["interrupted"]) == ("failed", True)
    assert not exists(server_url, evidence["volatile"]["database"])


def test_an_unknown_scenario_is_wrong_usage(lab: Callable[..., Run]) -> None:
    run = lab("--only", "no-such-thing")
    assert run.code == 2
    assert "no scenario is called no-such-thing" in run.output


def test_a_scenario_that_cannot_run_here_is_skipped_with_its_reason_and_never_passes(
    lab: Callable[..., Run],
) -> None:
    run = lab("--only", "server-restart")
    assert run.code == 3
    (scenario,) = run.evidence["scenarios"]
    assert (scenario["verdict"], scenario["reason"]) == (
        "skipped",
        "it stops the server, so it needs --embedded",
    )
    assert run.evidence["verdict"] == "failed"


def test_the_list_names_every_scenario_once() -> None:
    done = subprocess.run(lab_command("--list"), capture_output=True, text=True, check=True)
    names = [line.split()[1] for line in done.stdout.splitlines()]
    assert names == [scenario.name for scenario in ALL]
    assert len(set(names)) == len(names)


def test_new_evidence_and_the_committed_one_follow_the_schema(lab: Callable[..., Run]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA.read_text())
    validator = jsonschema.Draft202012Validator
    validator.check_schema(schema)
    committed = [json.loads(path.read_text()) for path in COMMITTED.parent.glob("*.json")]
    for evidence in (*committed, lab("--only", "skip-locked,server-restart").evidence):
        assert [error.message for error in validator(schema).iter_errors(evidence)] == []


def test_the_committed_evidence_is_of_a_whole_run_that_passed() -> None:
    committed = json.loads(COMMITTED.read_text())
    assert committed["verdict"] == "passed"
    assert committed["environment"]["postgresql"].startswith("18.")
    assert {scenario["verdict"] for scenario in committed["scenarios"]} == {"passed"}
    assert [scenario["name"] for scenario in committed["scenarios"]] == [
        scenario.name for scenario in ALL if scenario.by_default
    ]

"""A scenario that fails: the command says so, exits with 1, and still leaves nothing behind."""

import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from django_pgqueue.lab import runner
from django_pgqueue.lab.scenario import Scenario
from django_pgqueue.lab.stage import Stage
from tests.lab.runs import exists

pytestmark = pytest.mark.django_db


def _untrue(stage: Stage) -> None:
    stage.check("one is two", False, {"one": 1})
    stage.check("it goes on after that", True)


def _broken(stage: Stage) -> None:
    stage.session("A").raw.execute("SELECT pg_sleep(0); this is no statement")


def _waiting_in_vain(stage: Stage) -> None:
    stage.until_row("pigs fly", "SELECT false", within=timedelta(milliseconds=100))


@pytest.mark.parametrize(
    ("tell", "said"),
    [
        (_untrue, "DID NOT HOLD: one is two"),
        (_broken, "DID NOT HOLD: the scenario comes to its end (SyntaxError)"),
        (_waiting_in_vain, "DID NOT HOLD: not within 0.1 s: pigs fly"),
    ],
)
def test_a_failing_scenario_fails_the_run_and_its_database_is_dropped(
    tell: Callable[[Stage], None], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server_url: str
) -> None:
    failing = Scenario(name="failing", title="It fails", group="tests", run=tell)
    monkeypatch.setattr(runner, "ALL", [failing])
    path, out = tmp_path / "evidence.json", StringIO()
    with pytest.raises(CommandError, match="not every assertion held") as caught:
        call_command("pgqueue_lab", "--evidence", str(path), stdout=out)
    assert caught.value.returncode == 1
    assert said in out.getvalue()
    assert "0 passed, 1 failed" in out.getvalue()
    evidence = json.loads(path.read_text())
    assert evidence["verdict"] == "failed"
    assert any(step.get("holds") is False for step in evidence["scenarios"][0]["steps"])
    assert not exists(server_url, evidence["volatile"]["database"])

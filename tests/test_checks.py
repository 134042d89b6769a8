"""System checks: each id once, with a hint, and without a query."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import django
import pytest
from django.core import checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connections

from django_pgqueue.backend import PgQueueBackend
from django_pgqueue.checks import check_backend

OURS = "django_pgqueue.backend.PgQueueBackend"
IMMEDIATE = (
    f"{'django.tasks' if django.VERSION >= (6, 0) else 'django_tasks'}.backends.immediate.ImmediateBackend"
)


def ours() -> list[checks.CheckMessage]:
    """Return this package's messages among all; the database is out of reach, so that a query fails the test."""
    return [message for message in checks.run_checks() if (message.id or "").startswith("django_pgqueue.")]


def test_the_test_projects_settings_are_clean_and_no_query_is_made() -> None:
    """Report 104."""
    assert ours() == []
    call_command("check")


@pytest.mark.parametrize(
    ("params", "message_id", "text"),
    [
        ({"OPTIONS": {"LAESE": 1}}, "E001", "unknown option LAESE"),
        ({"OPTIONS": {"LEASE": 30}}, "E001", "LEASE must be a datetime.timedelta"),
        ({"OPTIONS": {"HEARTBEAT": timedelta(seconds=20)}}, "E001", "HEARTBEAT .* at most half of LEASE"),
        ({"OPTIONS": {"DATABASE": "nowhere"}}, "E001", "DATABASE must be one of"),
        ({"OPTIONS": {"DATABASE": ["default"]}}, "E001", "DATABASE must be one of"),
        ({"OPTIONS": None}, "E001", "must be a dict"),
        ({"OPTIONS": ["LEASE"]}, "E001", "must be a dict"),
        ({"QUEUES": "default"}, "E004", "QUEUES'] must be a list of names"),
    ],
)
def test_a_wrong_setting_is_one_error_with_a_hint(
    settings, params: dict[str, Any], message_id: str, text: str
) -> None:
    """Reports 16 and 26."""
    settings.TASKS = {"default": {"BACKEND": OURS, **params}}
    (message,) = ours()
    assert isinstance(message, checks.Error) and message.hint
    assert message.id == f"django_pgqueue.{message_id}"
    with pytest.raises(SystemCheckError, match=text):
        call_command("check")


def test_a_database_that_is_not_postgresql_is_an_error(settings) -> None:
    settings.TASKS = {"default": {"BACKEND": OURS, "OPTIONS": {"DATABASE": "other"}}}
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    before = connections["other"]
    connections.settings["other"], kept = (
        {**connections.settings["other"], **sqlite},
        connections.settings["other"],
    )
    del connections["other"]
    try:
        (message,) = check_backend("default")  # Django's own checks would ask SQLite
    finally:
        connections.settings["other"] = kept
        connections["other"] = before
    assert (message.id, bool(message.hint)) == ("django_pgqueue.E002", True)
    assert "DATABASES['other'], which is not PostgreSQL" in message.msg


def test_backends_that_share_a_queue_in_one_database_are_an_error(settings) -> None:
    """Report 139."""
    settings.TASKS = {
        "default": {"BACKEND": OURS, "QUEUES": ["default", "emails"]},
        "slow": {"BACKEND": OURS, "QUEUES": ["emails", "reports"]},
    }
    (message,) = ours()
    assert (message.id, bool(message.hint)) == ("django_pgqueue.E003", True)
    assert "'default' and 'slow' in TASKS share the queue 'emails'" in message.msg


def test_backends_on_other_databases_or_queues_share_nothing(settings) -> None:
    """Report 139."""
    settings.TASKS = {
        "default": {"BACKEND": OURS, "QUEUES": ["default"]},
        "far": {"BACKEND": OURS, "QUEUES": ["default"], "OPTIONS": {"DATABASE": "other"}},
        "more": {"BACKEND": OURS, "QUEUES": ["emails"]},
        "not": {"BACKEND": IMMEDIATE, "QUEUES": ["default"]},
    }
    assert ours() == []


def test_two_wrong_backends_are_two_errors(settings) -> None:
    settings.TASKS = {
        "one": {"BACKEND": OURS, "OPTIONS": {"LEASE": 1}},
        "two": {"BACKEND": OURS, "OPTIONS": None, "QUEUES": ["b"]},
    }
    assert [message.id for message in ours()] == ["django_pgqueue.E001"] * 2


class Tuned(PgQueueBackend):
    """A subclass under a path of its own."""


@pytest.mark.skipif(django.VERSION < (6, 0), reason="the backport's own check is not under test")
def test_a_subclass_is_checked_through_djangos_check(settings) -> None:
    settings.TASKS = {"default": {"BACKEND": f"{__name__}.Tuned", "OPTIONS": {"LEASE": 1}}}
    assert [message.id for message in ours()] == ["django_pgqueue.E001"]


def test_another_app_with_a_runworker_command_is_a_warning(settings, tmp_path: Path, monkeypatch) -> None:
    commands = tmp_path / "channels_like" / "management" / "commands"
    commands.mkdir(parents=True)
    for folder in (commands, commands.parent, commands.parent.parent):
        (folder / "__init__.py").touch()
    (commands / "runworker.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "channels_like"]
    try:
        (message,) = ours()
    finally:
        sys.modules.pop("channels_like", None)
    assert (message.id, message.level) == ("django_pgqueue.W001", checks.WARNING)
    assert "channels_like has a command runworker too" in message.msg
    assert "pgqueue_worker" in message.hint

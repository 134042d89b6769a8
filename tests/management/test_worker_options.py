"""Nonsense for every option: one clear line that names the option, and exit code 2."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import override_settings

from django_pgqueue.management.commands.runworker import Command
from django_pgqueue.management.worker_options import worker_settings

NONSENSE = {
    "--concurrency": ["0", "-1", "1.5", "abc", "", "nan", str(10**12), "1e3"],
    "--max-tasks": ["0", "-1", "1.5", "abc", "", "nan", str(10**12)],
    "--lease": ["0", "-1", "abc", "", "nan", "inf", str(10**12), "0.01"],
    "--interval": ["0", "-1", "abc", "", "nan", "inf", str(10**12)],
    "--shutdown-timeout": ["-1", "abc", "", "nan", "inf", str(10**12)],
    "--queue-name": ["", " ", "a,,b", "a,*", "x*", ",", "a\x00b", "q" * 101],
    "--exclude-queues": ["*", "a,,b", ",", "x*", "q" * 101],
    "--worker-id": ["", "  ", "a\nb", "\x07", "w" * 101],
    "--backend": ["", "missing", "DEFAULT"],
    "--pool": ["", "fibres", "thread"],
}

CASES = [(option, value) for option, values in NONSENSE.items() for value in values]


def settings_of(*flags: str) -> Any:
    """Return what the command would start a worker with."""
    parser = Command().create_parser("manage.py", "runworker")
    return worker_settings(vars(parser.parse_args(flags)))


@pytest.mark.parametrize(
    ("option", "value"), CASES, ids=[f"{option} {value[:12]!r}" for option, value in CASES]
)
def test_nonsense_is_refused_in_one_line_that_names_the_option(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reports 124 and 159."""
    try:
        settings_of(f"{option}={value}")
    except CommandError as refusal:
        assert refusal.returncode == 2
        message = str(refusal)
    except SystemExit as refusal:  # argparse's own answer to a choice that is none
        assert refusal.code == 2
        message = capsys.readouterr().err.strip().splitlines()[-1]
    else:
        pytest.fail("it was accepted")
    assert option in message
    assert "\n" not in message and "\x00" not in message
    assert len(message) < 300


def test_every_option_that_takes_a_value_is_among_the_refused() -> None:
    """Report 124."""
    parser = Command().create_parser("manage.py", "runworker")
    own = {
        action.option_strings[0]
        for action in parser._actions
        if action.nargs != 0
        and action.option_strings
        and action.dest not in {"verbosity", "settings", "pythonpath"}
    }
    assert own <= set(NONSENSE)


def test_excluding_all_queues_that_are_named_is_refused() -> None:
    """Report 124."""
    with pytest.raises(CommandError, match="--exclude-queues leaves no queue"):
        settings_of("--queue-name=a,b", "--exclude-queues=b,a")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"HEARTBEAT": timedelta(seconds=60)}, "HEARTBEAT"),
        ({"LEASE": timedelta(seconds=0)}, "LEASE"),
        ({"LEASE": 30}, "LEASE"),
        ({"MAX_ATTEMPTS": 0}, "MAX_ATTEMPTS"),
        ({"MAX_ATTEMPTS": True}, "MAX_ATTEMPTS"),
        ({"POLL_INTERVAL": timedelta(seconds=-1)}, "POLL_INTERVAL"),
        ({"FENCING": "none"}, "FENCING"),
        ({"DATABASE": "missing"}, "DATABASE"),
        ({"LEES": timedelta(seconds=30)}, "LEES"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_one_line(options: dict[str, Any], named: str) -> None:
    """Reports 26 and 159."""
    tasks = {"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "OPTIONS": options}}
    with override_settings(TASKS=tasks), pytest.raises(CommandError) as refusal:
        settings_of()
    assert refusal.value.returncode == 2
    assert named in str(refusal.value)
    assert "\n" not in str(refusal.value)

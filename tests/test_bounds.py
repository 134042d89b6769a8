"""One table of bounds: a value is in its domain or not, wherever it is written."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from django_pgqueue import bounds, task
from django_pgqueue.compat import InvalidTask
from django_pgqueue.conf import Options, read_options
from django_pgqueue.management.worker_options import add_worker_arguments, worker_settings
from django_pgqueue.worker.settings import WorkerSettings

BOTH = {"lease": bounds.LEASE, "timeout": bounds.TIMEOUT, "max_attempts": bounds.MAX_ATTEMPTS}
STEP = {"lease": timedelta(days=1), "timeout": timedelta(days=1), "max_attempts": 1}


def nothing() -> None:
    """Do nothing."""


def settings_of(*flags: str) -> WorkerSettings:
    parser = ArgumentParser()
    add_worker_arguments(parser)  # type: ignore[arg-type]
    return worker_settings(vars(parser.parse_args(flags)))


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("end", ["least", "most"])
def test_an_option_and_a_task_take_the_ends_of_a_bound_and_nothing_beyond(name: str, end: str) -> None:
    value: Any = getattr(BOTH[name], end)
    assert getattr(read_options("default", {name.upper(): value}), name) == value
    assert getattr(task(**{name: value})(nothing), name) == value
    beyond = value + STEP[name] if end == "most" else value - STEP[name]
    with pytest.raises(ImproperlyConfigured, match=name.upper()):
        read_options("default", {name.upper(): beyond})
    with pytest.raises(InvalidTask, match=name):
        task(**{name: beyond})(nothing)


@pytest.mark.parametrize(("name", "days"), [("lease", 3000), ("timeout", 20_000)])
def test_a_duration_that_is_too_long_is_so_in_options_in_a_task_and_as_a_flag(name: str, days: int) -> None:
    with pytest.raises(ImproperlyConfigured, match=name.upper()):
        read_options("default", {name.upper(): timedelta(days=days)})
    with pytest.raises(InvalidTask, match=name):
        task(**{name: timedelta(days=days)})(nothing)
    if name == "lease":
        with pytest.raises(CommandError, match="--lease"):
            settings_of("--lease", str(days * 86_400))


def test_the_poll_interval_has_the_same_ends_as_an_option_and_as_a_flag() -> None:
    for value in (bounds.POLL_INTERVAL.least, bounds.POLL_INTERVAL.most):
        assert read_options("default", {"POLL_INTERVAL": value}).poll_interval == value
        assert settings_of("--interval", str(value.total_seconds())).interval == value
    beyond = bounds.POLL_INTERVAL.most + timedelta(seconds=1)
    with pytest.raises(ImproperlyConfigured, match="POLL_INTERVAL"):
        read_options("default", {"POLL_INTERVAL": beyond})
    with pytest.raises(CommandError, match="--interval"):
        settings_of("--interval", str(beyond.total_seconds()))


def test_without_a_word_the_options_the_flags_and_a_workers_settings_have_the_tables_defaults() -> None:
    options, told, plain = Options(), settings_of(), WorkerSettings(using="default", options=Options())
    for settings in (told, plain):
        assert settings.lease == options.lease == bounds.LEASE.default
        assert settings.interval == options.poll_interval == bounds.POLL_INTERVAL.default
        assert settings.concurrency == bounds.CONCURRENCY.default
        assert settings.shutdown_timeout == bounds.SHUTDOWN_TIMEOUT.default
        assert settings.max_tasks == bounds.MAX_TASKS.default
    assert (options.max_attempts, options.timeout, options.heartbeat) == (5, None, None)

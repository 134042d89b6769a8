"""The options in TASKS: their domains, and what is said outside them."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_pgqueue import Backoff
from django_pgqueue.backend import PgQueueBackend
from django_pgqueue.conf import Options, backend_aliases, queues_of, queues_problem, read_options

SECOND = timedelta(seconds=1)


def test_the_defaults_are_those_that_are_documented() -> None:
    options = read_options("default", {})
    assert options.lease == timedelta(seconds=30)
    assert options.beat == timedelta(seconds=10)
    assert (options.max_attempts, options.fencing, options.listen) == (5, "token", True)
    assert options.poll_interval == SECOND
    assert (options.keep_done, options.keep_failed) == (timedelta(days=1), timedelta(days=14))
    assert (options.timeout, options.database) == (None, None)
    assert isinstance(options.backoff, Backoff)


@pytest.mark.parametrize(
    "raw",
    [
        {"LEASE": timedelta(milliseconds=100)},
        {"LEASE": timedelta(days=365)},
        {"LEASE": 2 * SECOND, "HEARTBEAT": SECOND},
        {"HEARTBEAT": None, "TIMEOUT": None, "KEEP_DONE": None, "KEEP_FAILED": None, "DATABASE": None},
        {"KEEP_DONE": timedelta(0), "KEEP_FAILED": timedelta(0)},
        {"MAX_ATTEMPTS": 1},
        {"MAX_ATTEMPTS": 1_000_000},
        {"FENCING": "strict"},
        {"LISTEN": False},
        {"BACKOFF": lambda attempt, error: None},
        {"DATABASE": "other"},
    ],
)
def test_a_value_in_its_domain_is_taken(raw: dict[str, Any]) -> None:
    options = read_options("default", raw)
    assert {name: getattr(options, name.lower()) for name in raw} == raw


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"LEASE": 30}, "LEASE must be a datetime.timedelta, not 30"),
        ({"LEASE": None}, "LEASE must be a datetime.timedelta, not None"),
        ({"LEASE": "30"}, "LEASE must be a datetime.timedelta, not '30'"),
        ({"LEASE": timedelta(0)}, "LEASE must be at least 0:00:00.1"),
        ({"LEASE": -SECOND}, "LEASE must be at least 0:00:00.1"),
        ({"LEASE": timedelta(days=366)}, "LEASE must be at most 365 days"),
        ({"HEARTBEAT": 5}, "HEARTBEAT must be a datetime.timedelta"),
        ({"POLL_INTERVAL": timedelta(0)}, "POLL_INTERVAL must be at least"),
        ({"POLL_INTERVAL": 0.5}, "POLL_INTERVAL must be a datetime.timedelta"),
        ({"KEEP_DONE": -SECOND}, "KEEP_DONE must be at least 0:00:00 and"),
        ({"KEEP_FAILED": 86400}, "KEEP_FAILED must be a datetime.timedelta"),
        ({"TIMEOUT": timedelta(0)}, "TIMEOUT must be at least"),
        ({"TIMEOUT": timedelta.max}, "TIMEOUT must be at least"),
        ({"MAX_ATTEMPTS": 0}, "MAX_ATTEMPTS must be between 1 and 1000000, not 0"),
        ({"MAX_ATTEMPTS": -1}, "MAX_ATTEMPTS must be between"),
        ({"MAX_ATTEMPTS": 10**12}, "MAX_ATTEMPTS must be between"),
        ({"MAX_ATTEMPTS": 1.5}, "MAX_ATTEMPTS must be a whole number, not 1.5"),
        ({"MAX_ATTEMPTS": "3"}, "MAX_ATTEMPTS must be a whole number, not '3'"),
        ({"MAX_ATTEMPTS": True}, "MAX_ATTEMPTS must be a whole number, not True"),
        ({"MAX_ATTEMPTS": float("nan")}, "MAX_ATTEMPTS must be a whole number, not nan"),
        ({"MAX_ATTEMPTS": None}, "MAX_ATTEMPTS must be a whole number, not None"),
        ({"FENCING": "none"}, "FENCING must be one of token, strict, not 'none'"),
        ({"FENCING": []}, "FENCING must be one of"),
        ({"LISTEN": 1}, "LISTEN must be True or False, not 1"),
        ({"BACKOFF": 2}, "BACKOFF must be a Backoff or a callable"),
        ({"DATABASE": "elsewhere"}, r"DATABASE must be one of DATABASES \(default, other\), not 'elsewhere'"),
        ({"DATABASE": ["default"]}, "DATABASE must be one of DATABASES"),
        ({"lease": SECOND}, "unknown option lease; the options are BACKOFF, DATABASE"),
        ({"RETRIES": 3, 5: 6}, "unknown option 5, RETRIES"),
        ([("LEASE", SECOND)], "must be a dict"),
        (None, "must be a dict, not None"),
    ],
)
def test_a_value_out_of_its_domain_is_refused_and_named(raw: Any, message: str) -> None:
    """Report 159."""
    with pytest.raises(ImproperlyConfigured, match=message) as error:
        read_options("pg", raw)
    assert str(error.value).startswith("TASKS['pg']['OPTIONS']")


@pytest.mark.parametrize("beat", [16, 30, 31, 3600])
def test_a_heartbeat_that_could_lose_a_healthy_lease_is_refused(beat: int) -> None:
    """Reports 16 and 26."""
    with pytest.raises(ImproperlyConfigured, match="HEARTBEAT .* must be at most half of LEASE"):
        Options(lease=timedelta(seconds=30), heartbeat=timedelta(seconds=beat))
    with pytest.raises(ImproperlyConfigured, match="HEARTBEAT"):
        read_options("default", {"HEARTBEAT": timedelta(seconds=beat)})


def test_the_heartbeat_follows_the_lease() -> None:
    """Report 16."""
    assert Options(lease=timedelta(seconds=3)).beat == SECOND
    assert Options(lease=timedelta(seconds=30), heartbeat=timedelta(seconds=15)).beat == timedelta(seconds=15)


def test_only_the_backends_of_this_package_are_its_own(settings) -> None:
    settings.TASKS = {
        "default": {"BACKEND": "django.tasks.backends.immediate.ImmediateBackend"},
        "pg": {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "QUEUES": ["a", "b"]},
        "any": {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "QUEUES": []},
    }
    assert backend_aliases() == ["pg", "any"]
    assert (queues_of("pg"), queues_of("any")) == ({"a", "b"}, set())


@pytest.mark.parametrize("queues", ["default", None, 5, ["a", None], [""], ["q" * 101], {"a": 1}, b"ab"])
def test_queues_that_are_no_list_of_names_are_a_problem(settings, queues: Any) -> None:
    settings.TASKS = {
        "default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "QUEUES": queues},
    }
    assert "must be a list of names" in (queues_problem("default") or "")
    assert queues_of("default") == set()


class OwnBackend(PgQueueBackend):
    """A project's own backend."""


def test_a_subclass_of_the_backend_under_another_path_is_this_queue_s_too(settings):
    from django_pgqueue.conf import backend_aliases

    settings.TASKS = {
        "ours": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"},
        "own": {"BACKEND": f"{__name__}.OwnBackend"},
        "gone": {"BACKEND": "no.such.Backend"},
        "none": {},
    }
    assert backend_aliases() == ["ours", "own"]

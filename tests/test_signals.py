"""Signals: no receiver can change anything, and nobody pays for one that nobody hears."""

from __future__ import annotations

import logging

import pytest
from django.dispatch import Signal

from django_pgqueue import compat, signals
from django_pgqueue.signals import tell


def test_a_receiver_that_leaves_the_process_does_not() -> None:
    """Report 138."""
    signal = Signal()

    def leave(sender: object, **kwargs: object) -> None:
        raise SystemExit(3)

    signal.connect(leave)
    tell(signal, None)


@pytest.mark.parametrize(
    ("debug", "level", "heard"),
    [(False, logging.INFO, False), (True, logging.INFO, True), (False, logging.ERROR, True)],
)
def test_under_djangos_own_logging_a_signal_is_heard_only_if_its_line_is_written(
    settings, monkeypatch, debug: bool, level: int, heard: bool
) -> None:
    """Without a receiver of the project's, and without DEBUG, a job that is done costs no signal."""
    from django.utils.log import AdminEmailHandler, RequireDebugFalse, RequireDebugTrue

    settings.DEBUG = debug
    console, mail = logging.StreamHandler(), AdminEmailHandler()
    console.setLevel(logging.INFO)
    console.addFilter(RequireDebugTrue())
    mail.setLevel(logging.ERROR)
    mail.addFilter(RequireDebugFalse())
    logger = logging.Logger("django.tasks", logging.INFO)
    logger.handlers = [console, mail]
    monkeypatch.setattr(signals, "_LOGGER", logger)
    assert signals.is_heard(compat.task_finished, level) is heard


def test_a_logger_without_any_handler_writes_warnings_only(monkeypatch) -> None:
    monkeypatch.setattr(signals, "_LOGGER", logging.Logger("bare", logging.INFO))
    assert not signals.is_heard(compat.task_finished, logging.INFO)
    assert signals.is_heard(compat.task_finished, logging.ERROR)

"""The command `runworker`: its backend, its end, and the process that called it."""

from __future__ import annotations

import json
import threading

import django
import pytest
from django.core.management import CommandError, call_command

from django_pgqueue import task
from django_pgqueue import task as our_task
from django_pgqueue.models import Job
from tests.processes.stage import Stage

OURS = "django_pgqueue.backend.PgQueueBackend"
IMMEDIATE = (
    "django.tasks.backends.immediate.ImmediateBackend"
    if django.VERSION >= (6, 0)
    else "django_tasks.backends.immediate.ImmediateBackend"
)

leave = threading.Event()


@task(max_attempts=1)
def stuck() -> None:
    leave.wait(30)


@pytest.mark.django_db(transaction=True)
def test_a_job_that_outlives_the_shutdown_timeout_does_not_end_the_caller_s_process() -> None:
    """On the command line such a worker leaves at once; here the process is somebody else's. Report 130."""
    leave.clear()
    stuck.enqueue()
    try:
        call_command("runworker", max_tasks="1", shutdown_timeout="0.2", verbosity=0)
        job = Job.objects.get()
        assert (job.state, job.attempts, job.generation) == ("ready", 0, 1)
    finally:
        leave.set()


def run_worker(*flags: str) -> None:
    call_command("runworker", "--batch", *flags, verbosity=0)


# Several backends


@our_task
def shout(text: str) -> str:
    return text.upper()


def test_a_worker_without_any_backend_of_ours_says_so(settings) -> None:
    settings.TASKS = {"default": {"BACKEND": IMMEDIATE}}
    with pytest.raises(CommandError, match="no backend in TASKS is django_pgqueue") as error:
        run_worker()
    assert error.value.returncode == 2


def test_an_ambiguous_backend_must_be_named(settings) -> None:
    """Report 139."""
    settings.TASKS = {
        "default": {"BACKEND": IMMEDIATE},
        "one": {"BACKEND": OURS},
        "two": {"BACKEND": OURS, "QUEUES": ["emails"]},
    }
    with pytest.raises(CommandError, match=r"--backend is needed: .*\(one, two\)"):
        run_worker()


# Wrong settings


@pytest.mark.django_db(transaction=True)
def test_the_worker_has_a_second_name() -> None:
    result = shout.enqueue("x")
    call_command("pgqueue_worker", "--batch", verbosity=0)
    result.refresh()
    assert result.return_value == "X"


def test_the_process_says_one_line_and_exits_with_2(stage: Stage) -> None:
    """Report 159."""
    for flags in (["--concurrency", "0"], ["--pool", "fibres"], ["--bogus"], ["--lease"]):
        with stage.child("runworker", *flags) as process:
            assert process.wait(20) == 2
            assert process.stdout
            lines = process.stdout.read().decode().splitlines()
        assert len([line for line in lines if "rror" in line]) == 1, lines
        assert "Traceback" not in "".join(lines)
    heartbeat = json.dumps({"tasks": {"HEARTBEAT": 60}})
    with stage.child("runworker", PROCESS_SETTINGS=heartbeat) as process:
        code = process.wait(20)
        assert process.stdout
        output = process.stdout.read().decode()
    assert code in (1, 2)  # 1: a system check refused it before the command ran
    assert "HEARTBEAT" in output
    assert "Traceback" not in output

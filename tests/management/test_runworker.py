"""The worker as a function call: it must never end the process that called it."""

from __future__ import annotations

import threading

import pytest
from django.core.management import call_command

from django_pgqueue import task
from django_pgqueue.models import Job

leave = threading.Event()


@task(max_attempts=1)
def stuck() -> None:
    leave.wait(30)


@pytest.mark.django_db(transaction=True)
def test_a_job_that_outlives_the_shutdown_timeout_does_not_end_the_caller_s_process() -> None:
    """130: on the command line such a worker leaves at once; here the process is somebody else's."""
    leave.clear()
    stuck.enqueue()
    try:
        call_command("runworker", max_tasks="1", shutdown_timeout="0.2", verbosity=0)
        job = Job.objects.get()
        assert (job.state, job.attempts, job.generation) == ("ready", 0, 1)
    finally:
        leave.set()

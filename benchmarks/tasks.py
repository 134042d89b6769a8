"""The jobs: ordinary tasks, the same ones for every queue that runs `django.tasks`."""

import os
import time

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


@task
def noop(text):
    """Do nothing, with an argument of some length."""


@task
async def anoop(text):
    """Do nothing, as a coroutine."""


@task
def stamp(sent):
    """Note how long ago the job was sent: from the call of `enqueue` to here."""
    note(sent)


def note(sent):
    """Append to the file that the benchmark reads."""
    with open(os.environ["BENCHMARK_STAMPS"], "a") as stamps:
        stamps.write(f"{time.time() - sent}\n")

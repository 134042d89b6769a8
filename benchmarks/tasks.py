"""The jobs: ordinary tasks, the same ones for every queue that runs `django.tasks`."""

from .stamps import note

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

"""Workers that run what is due in this process, and a count of the starts."""

import random
from typing import Any

from django.core.management import call_command

from django_pgqueue import task
from django_pgqueue.models import Job
from django_pgqueue.states import State
from testproject.shop.models import Order


def run_worker(*flags: str) -> None:
    call_command("runworker", "--batch", *flags, verbosity=0)


def run_until_nothing_waits() -> None:
    """Run workers, moving scheduled jobs to now, until every job has ended."""
    for _ in range(100):
        run_worker()
        if not Job.objects.live().exists():
            return
        Job.objects.filter(state=State.SCHEDULED).update(run_after="2000-01-01T00:00Z")
    raise AssertionError(f"still waiting: {Job.objects.live().values()}")


def note_start(kind: str, key: object) -> int:
    """Audit a start in a table, and return which start it was."""
    Order.objects.create(number=f"{random.getrandbits(64):x}", customer=f"{kind}-{key}", amount=1)
    return starts(kind, key)


def starts(kind: str, key: object) -> int:
    return Order.objects.filter(customer=f"{kind}-{key}").count()


@task
def succeed(value: Any = None) -> Any:
    return value

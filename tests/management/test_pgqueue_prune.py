"""The command that deletes old jobs."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command

from django_pgqueue.models import Job
from tests.upkeep.rows import DAY, ended, left

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_command_prunes_by_the_backends_options_and_says_how_many(settings):
    ended("done", 2 * DAY, 3)
    ended("failed", 2 * DAY, 2)
    out = StringIO()
    call_command("pgqueue_prune", stdout=out)
    assert (out.getvalue(), len(left())) == ("3 jobs were deleted.\n", 2)

    settings.TASKS = {
        "default": {
            **settings.TASKS["default"],
            "OPTIONS": {"KEEP_DONE": None, "KEEP_FAILED": timedelta(hours=1)},
        }
    }
    ended("done", 2 * DAY, 1)
    out = StringIO()
    call_command("pgqueue_prune", stdout=out, verbosity=0)
    assert out.getvalue() == ""
    assert {job.state for job in Job.objects.all()} == {"done"}

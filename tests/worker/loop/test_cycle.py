"""The loop: what it writes, and what it makes of a refusal."""

from datetime import timedelta

import pytest
from django.db import DatabaseError, InternalError, connection

from django_pgqueue import leases, outcomes
from django_pgqueue.faults import is_about_data
from django_pgqueue.models import Job


@pytest.mark.django_db(transaction=True)
def test_an_ending_refused_by_a_read_only_server_is_not_stored_as_a_failure() -> None:
    job = Job.objects.create(task="x")
    (lease,) = leases.claim(worker="w", queues=["default"], lease=timedelta(seconds=30))
    refused: list[DatabaseError] = []

    def read_only_at_first(execute, statement, params, many, context):
        if not refused:
            connection.connection.execute("SET TRANSACTION READ ONLY")
        try:
            return execute(statement, params, many, context)
        except DatabaseError as error:
            refused.append(error)
            raise

    with connection.execute_wrapper(read_only_at_first), pytest.raises(InternalError):
        outcomes.end_singly([outcomes.Ending.done(lease, '"result"')], using="default")
    assert len(refused) == 1
    assert not is_about_data(refused[0])
    job.refresh_from_db()
    assert (job.state, job.generation) == ("running", 1)

"""What an error of the database means, and which ones are tried again."""

import psycopg
import pytest
from django.db import DatabaseError, IntegrityError, OperationalError, connection, transaction

from django_pgqueue.faults import CONFLICT_TRIES, is_about_data, retry_conflicts


@pytest.mark.django_db
@pytest.mark.parametrize(
    "statement",
    [
        """SELECT '"\\u0000"'::jsonb::text::jsonb ->> 0""",
        "SELECT 1 / 0",
        "INSERT INTO django_pgqueue_job (task, state) VALUES ('x', 'no such state')",
    ],
)
def test_a_refused_value_is_about_data(statement: str) -> None:
    with pytest.raises(DatabaseError) as caught, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert is_about_data(caught.value)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("conflict", [psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure])
def test_conflicts_without_end_are_tried_a_bounded_number_of_times(conflict):
    runs = []

    def always_in_conflict():
        runs.append(1)
        raise OperationalError("again") from conflict("again")

    with pytest.raises(OperationalError):
        retry_conflicts(always_in_conflict)
    assert len(runs) == CONFLICT_TRIES


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OperationalError, psycopg.errors.QueryCanceled),
        (OperationalError, psycopg.errors.LockNotAvailable),
        (OperationalError, psycopg.OperationalError),
        (IntegrityError, psycopg.errors.UniqueViolation),
        (ValueError, ValueError),
    ],
)
def test_only_what_the_server_surely_rolled_back_is_run_again(error, cause):
    """A lost connection leaves the commit uncertain: that is settled by reading the row, not by a second run."""
    runs = []

    def refused():
        runs.append(1)
        raise error("no") from cause("no")

    with pytest.raises(error):
        retry_conflicts(refused)
    assert len(runs) == 1

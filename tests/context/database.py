"""Cleans up after tests that commit by deleting their few rows, which is much faster than to truncate every table."""

from collections.abc import Iterator

import pytest
from django.db import connections
from django.test import TransactionTestCase

TABLES = (
    "shop_rendering",
    "shop_receipt",
    "shop_order",
    "django_pgqueue_rejection",
    "django_pgqueue_failure",
    "django_pgqueue_effect",
    "django_pgqueue_worker",
    "django_pgqueue_job",
)
CLEAN = "; ".join(f"DELETE FROM {table}" for table in TABLES)


@pytest.fixture(scope="module", autouse=True)
def quick_clean_up() -> Iterator[None]:
    """Let the tests of a module commit, and delete what they left instead of flushing the database."""

    def clean(test: TransactionTestCase) -> None:
        for alias in test._databases_names(include_mirrors=False):
            with connections[alias].cursor() as cursor:
                cursor.execute(CLEAN)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", clean)
        yield

"""Runs of these tests beside each other on one server, and the processes of each, share no database."""

import pytest
from django.db import connections

from testproject.settings import database
from tests.databases import names_of_databases, number_of_its_own

PLAIN = str(database()["NAME"])
NAMED = {"default": PLAIN, "other": f"{PLAIN}_other"}


@pytest.mark.django_db(databases=["default", "other"])
def test_processes_that_run_tests_at_once_have_databases_of_their_own() -> None:
    used = {connections[alias].settings_dict["NAME"] for alias in NAMED}
    with number_of_its_own() as second, number_of_its_own() as third:
        theirs = [set(names_of_databases(NAMED, number).values()) for number in (second, third)]
    assert len(used.union(*theirs)) == 6


@pytest.mark.django_db(databases=["default", "other"])
def test_this_process_has_the_databases_that_its_number_names() -> None:
    used = {alias: connections[alias].settings_dict["NAME"] for alias in NAMED}
    with number_of_its_own() as next_one:
        assert used in [names_of_databases(NAMED, number) for number in range(next_one + 20)]


@pytest.mark.parametrize("number", [0, 1, 12])
def test_a_child_finds_the_other_database_by_the_name_of_the_default_one(number: int) -> None:
    names = names_of_databases(NAMED, number)
    assert names["other"] == f"{names['default']}_other"

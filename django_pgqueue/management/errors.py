"""A database that does not answer a command: one sentence, not a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.base import CommandError
from django.db import DatabaseError, InterfaceError

from ..faults import first_line


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Turn an error of the database into a CommandError (exit code 1) with its first line."""
    try:
        yield
    except (DatabaseError, InterfaceError) as error:
        raise CommandError(f"the database says: {first_line(error)}", returncode=1) from error

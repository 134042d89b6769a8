"""What commands answer in one clear line: nonsense on the command line (exit code 2), a database that fails (1)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.core.management.base import CommandError
from django.db import DatabaseError, InterfaceError

from ..bounds import Bound
from ..faults import first_line
from ..states import MAX_QUEUE_NAME

USAGE = 2


def whole_number(option: str, text: str | int, bound: Bound) -> int:
    """Return the whole number given for `option`. Raises CommandError (exit code 2) outside its bound."""
    try:
        number = int(text)
    except (TypeError, ValueError):
        raise CommandError(f"{option} must be a whole number, not {text!r}", returncode=USAGE) from None
    if not bound.holds(number):
        raise CommandError(
            f"{option} must be between {bound.least} and {bound.most}, not {number}", returncode=USAGE
        )
    return number


def seconds(option: str, text: str | float, bound: Bound) -> timedelta:
    """Return the duration given in seconds for `option`. Raises CommandError (exit code 2) outside its bound."""
    least, most = bound.least.total_seconds(), bound.most.total_seconds()
    try:
        number = float(text)
    except (TypeError, ValueError):
        number = math.nan
    if not least <= number <= most:
        raise CommandError(
            f"{option} must be a number of seconds between {least:g} and {most:g}, not {text!r}",
            returncode=USAGE,
        )
    return timedelta(seconds=number)


def queue_names(option: str, text: str) -> list[str] | None:
    """Return the names in a comma-separated list, None for `*` (every queue).

    Names are taken literally, but for white space around them: there are no wildcards, and a name with a comma
    cannot be given. Raises CommandError (exit code 2) for an empty list or name, or a `*` inside one.
    """
    names = [name.strip() for name in text.split(",")]
    if names == ["*"]:
        return None
    for name in names:
        if not name or "*" in name or "\x00" in name or len(name) > MAX_QUEUE_NAME:
            raise CommandError(
                f"{option} must be * or a comma-separated list of queue names, not {text[:100]!r}",
                returncode=USAGE,
            )
    return list(dict.fromkeys(names))


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Turn an error of the database into a CommandError (exit code 1) with its first line."""
    try:
        yield
    except (DatabaseError, InterfaceError) as error:
        raise CommandError(f"the database says: {first_line(error)}", returncode=1) from error

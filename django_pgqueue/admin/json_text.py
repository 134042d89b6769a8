"""JSON for people: indented, cut, and without what looks like a secret."""

from __future__ import annotations

import json
import re
from typing import Any

HIDDEN = "********************"
# Names whose values are not shown. Positional arguments have no names and are shown: pass secrets by reference.
SECRET = re.compile(
    r"passw|passphrase|(^|[_-])(pass|pwd)([_-]|$)|secret|token|api[_-]?key|private[_-]?key|credential"
    r"|authorization|cookie|signature",
    re.IGNORECASE,
)
# A number of more digits is no int for Python; it is shown as text.
LONGEST_INT = 4000


def parsed(text: str) -> Any:
    """Return the value of a JSON text from the database. Raises RecursionError if it is nested too deep."""
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) <= LONGEST_INT else digits)


def without_secrets(value: Any) -> Any:
    """Return `value` with the values of secret-looking keys hidden, at any depth."""
    if isinstance(value, dict):
        return {
            key: HIDDEN if SECRET.search(key) and item not in (None, "") else without_secrets(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(item) for item in value]
    return value


def indented(value: Any) -> str:
    """Return the JSON text of `value` as people read it."""
    return json.dumps(value, indent=2, ensure_ascii=False)

"""Statements of a worker before whose commit, or before the reply to it, a trap may hold it."""

from __future__ import annotations

from ..sql import claiming, ending


def _words_of(words: str, *statements: str) -> str:
    """Return the words by which a statement is known on its way, if it has them. Raises LookupError."""
    if not all(words in statement for statement in statements):
        raise LookupError(f"a trap looks for {words!r}, which its statement no longer has")
    return words


CLAIM = _words_of("generation = j.generation + 1", claiming.CLAIM, claiming.RECLAIM)
END = _words_of("WITH ending (id, generation", ending.END)
EFFECT = 'INSERT INTO "django_pgqueue_effect"'

"""A database session that a reader can follow: every statement with its reply."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg

from .recorder import Recorder
from .target import APPLICATION, Target
from .waiting import until


class Session:
    """One named session in autocommit mode; BEGIN and ROLLBACK are statements like any other."""

    def __init__(self, name: str, target: Target, recorder: Recorder) -> None:
        self.name = name
        self.application = f"{APPLICATION} {name}"
        self._target = target
        self.raw = target.connect(self.application)
        self._recorder = recorder

    def run(self, statement: str, *values: object) -> Any:
        """Run a statement, show and keep it with its reply: rows, the command's tag, or {"error": …}."""
        shown = shown_statement(statement, values)
        self._recorder.ask(self.name, shown)
        reply = self.quietly(statement, *values)
        self._recorder.statement(self.name, shown, reply)
        return reply

    def quietly(self, statement: str, *values: object) -> Any:
        """Run a statement that is not part of the story; return the same reply."""
        try:
            cursor = self.raw.execute(statement, list(values) or None)
        except psycopg.Error as error:
            return {"error": f"{error.sqlstate} {type(error).__name__}"}
        if cursor.description is None:
            return cursor.statusmessage
        return [[_plain(value) for value in row] for row in cursor.fetchall()]

    def value(self, statement: str, *values: object) -> Any:
        """Return the first value of a statement that is not part of the story."""
        row = self.raw.execute(statement, list(values) or None).fetchone()
        return None if row is None else row[0]

    def reconnect(self, target: Target | None = None) -> None:
        """Wait for a server that was away, and open the session anew."""
        self._target = target or self._target

        def opens() -> bool:
            with suppress(psycopg.OperationalError):
                self.raw = self._target.connect(self.application)
                return True
            return False

        self.raw.close()
        until(opens, f"session {self.name} opens", within=timedelta(minutes=1))

    def close(self) -> None:
        """Close the session; what it had not committed is rolled back."""
        self.raw.close()


def shown_statement(statement: str, values: tuple[object, ...]) -> str:
    """Return a statement with its values in their places, as a reader would type it."""
    for value in values:
        statement = statement.replace("%s", repr(value), 1)
    return statement


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str | list | dict) else str(value)

"""Reads what a PostgreSQL client sends, as far as the proxy's traps need it."""

from __future__ import annotations

_SSL_OR_GSS = (80877103, 80877104)


class Requests:
    """The SQL in one client's messages, also of those that only name a statement which the server keeps."""

    def __init__(self) -> None:
        self._buffer = b""
        self._has_started = False
        self._kept: dict[bytes, bytes] = {}

    def feed(self, chunk: bytes) -> bytes:
        """Return the SQL of the messages that these bytes complete."""
        self._buffer += chunk
        found = []
        while (message := self._next()) is not None:
            found.append(self._sql(message))
        return b"\n".join(found)

    def _next(self) -> bytes | None:
        """Return the next whole message, with its type; the first ones of a connection have none."""
        start = 1 if self._has_started else 0
        size = start + int.from_bytes(self._buffer[start : start + 4])
        if len(self._buffer) < max(start + 4, size):
            return None
        message, self._buffer = self._buffer[:size], self._buffer[size:]
        if not self._has_started:
            self._has_started = int.from_bytes(message[4:8]) not in _SSL_OR_GSS
            return b""
        return message

    def _sql(self, message: bytes) -> bytes:
        kind, body = message[:1], message[5:]
        if kind == b"Q":
            return body
        if kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            self._kept[name] = text
            return text
        if kind == b"B":
            _, name, _ = body.split(b"\0", 2)
            return self._kept.get(name, b"")
        return b""

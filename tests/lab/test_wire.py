"""The proxy knows a statement also by the name under which the server keeps it."""

from __future__ import annotations

import struct

import pytest

from django_pgqueue.lab.wire import Requests

SSL = struct.pack("!II", 8, 80877103)
STARTUP = struct.pack("!II", 8 + 9, 196608) + b"user\0a\0\0\0"


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


QUERY = message(b"Q", b"BEGIN\0")
PARSE = message(b"P", b"_pg3_0\0UPDATE kept\0\0\0")
BIND = message(b"B", b"\0_pg3_0\0\0\0\0\0\0\0")
UNNAMED = message(b"P", b"\0SELECT once\0\0\0") + message(b"B", b"\0\0\0\0\0\0\0\0")
SYNC = message(b"S", b"")
STREAM = SSL + STARTUP + QUERY + PARSE + SYNC + BIND + SYNC + UNNAMED + BIND


@pytest.mark.parametrize("size", [1, 2, 7, 50, len(STREAM)])
def test_the_statements_of_a_stream_are_found_however_it_is_cut(size: int) -> None:
    requests = Requests()
    found = b" ".join(requests.feed(STREAM[start : start + size]) for start in range(0, len(STREAM), size))
    assert found.count(b"BEGIN") == 1
    assert found.count(b"UPDATE kept") == 3  # sent once, and run twice by its name
    assert found.count(b"SELECT once") == 2

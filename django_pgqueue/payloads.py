"""What may be enqueued, and renderings of outcomes that can always be stored."""

from __future__ import annotations

import json
import math
import re
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from .exceptions import InvalidPayload

MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_DEPTH = 100
MAX_MESSAGE_CHARS = 4_000
MAX_TRACEBACK_CHARS = 40_000

_LARGE_FLOAT = 1e16
_SPELLED = re.compile(r'"\\u0000(-?[0-9]+\.0)"')
_SURROGATE = re.compile("[\ud800-\udfff]")
# Made once: json.dumps makes one for every call with arguments like these.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorText:
    """A rendering of an exception that PostgreSQL can store."""

    exception_class: str
    message: str
    traceback: str


def encode_payload(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the JSON text of a job's arguments.

    Only str, int, float, bool, None, list and dict with str keys are accepted, so that a task gets
    exactly what was enqueued. Raises InvalidPayload, naming the argument, for any other type, for
    NUL, lone surrogates, NaN and Infinity, and for more than MAX_PAYLOAD_BYTES bytes of JSON. PostgreSQL
    does not keep the order of the keys of a dict, nor the sign of -0.0.
    """
    for index, value in enumerate(args):
        if not _is_plain(value):
            _check(value, f"args[{index}]", tuples=False)
    for key, value in kwargs.items():
        _check(key, f"the name of kwargs[{key!r}]", tuples=False)
        _check(value, f"kwargs[{key!r}]", tuples=False)
    return _dump({"args": list(args), "kwargs": dict(kwargs)}, "the arguments")


def decode_payload(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and keyword arguments in a payload.

    Raises InvalidPayload for another shape, which plain SQL may have written.
    """
    payload = json.loads(text)
    args, kwargs = arguments_in(payload)
    given = (payload.get("args", args), payload.get("kwargs", kwargs)) if isinstance(payload, dict) else None
    if given != (args, kwargs):
        raise InvalidPayload(
            'the payload must be {"args": [...], "kwargs": {...}}, not ' + storable(text, 200)
        )
    return args, kwargs


def arguments_in(payload: object) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments in a decoded payload, for showing: empty ones where it has another shape."""
    parts = payload if isinstance(payload, dict) else {}
    args, kwargs = parts.get("args"), parts.get("kwargs")
    return args if isinstance(args, list) else [], kwargs if isinstance(kwargs, dict) else {}


def encode_result(value: Any) -> str | None:
    """Return the JSON text of a task's return value, None for None; tuples become lists, as in Django.

    Raises InvalidPayload as `encode_payload` does.
    """
    if value is None:
        return None
    _check(value, "the return value", tuples=True)
    return _dump(value, "the return value")


def _is_plain(value: Any) -> bool:
    """Whether there is nothing to check, as with most arguments; without a path made for an error."""
    kind = type(value)
    return kind is int or (kind is str and value.isascii() and "\x00" not in value)


def _check(value: Any, path: str, *, tuples: bool, depth: int = 0) -> None:
    if value is None or isinstance(value, bool | int):
        return
    if depth > MAX_DEPTH:
        raise InvalidPayload(f"{path[:200]}… is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidPayload(f"{path} is {value}, which JSON cannot hold")
    elif isinstance(value, list) or (tuples and isinstance(value, tuple)):
        for index, item in enumerate(value):
            _check(item, f"{path}[{index}]", tuples=tuples, depth=depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidPayload(f"{path} has the key {key!r}; JSON keys are str, not {_name(key)}")
            _check_text(key, f"a key of {path}")
            _check(item, f"{path}[{key!r}]", tuples=tuples, depth=depth + 1)
    else:
        raise InvalidPayload(
            f"{path} is a {_name(value)}; JSON holds str, int, float, bool, None, list and dict. "
            "Pass a reference (a primary key) or convert it first"
        )


def _check_text(text: str, path: str) -> None:
    if "\x00" in text:
        raise InvalidPayload(f"{path} contains a NUL character, which PostgreSQL cannot store")
    if not text.isascii() and _SURROGATE.search(text):
        raise InvalidPayload(f"{path} contains a lone surrogate, which is not valid Unicode text")


def _dump(value: Any, what: str) -> str:
    try:
        text = _json(value)
        if "e+" in text:
            text = _SPELLED.sub(r"\1", _json(_spelled(value)))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidPayload(f"{what} cannot be written as JSON: {error}") from error
    size = len(text.encode())
    if size > MAX_PAYLOAD_BYTES:
        raise InvalidPayload(
            f"{what} take {size} bytes as JSON, more than {MAX_PAYLOAD_BYTES}; pass a reference instead"
        )
    return text


def _json(value: Any) -> str:
    return _ENCODER.encode(value)


def _spelled(value: Any) -> Any:
    """Mark the large floats: jsonb keeps 1e+23 as a whole number, but 100000000000000000000000.0 as it is.

    The mark is a NUL, which no text that got this far contains.
    """
    if isinstance(value, float) and abs(value) >= _LARGE_FLOAT:
        return f"\x00{Decimal(float.__repr__(value)):f}.0"
    if isinstance(value, list | tuple):
        return [_spelled(item) for item in value]
    if isinstance(value, dict):
        return {key: _spelled(item) for key, item in value.items()}
    return value


def _name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def render_exception(error: BaseException) -> ErrorText:
    """Return a bounded, storable rendering of any exception. Cannot raise."""
    return ErrorText(
        exception_class=_rendered(lambda: _name(error), 500),
        message=_rendered(lambda: str(error), MAX_MESSAGE_CHARS),
        traceback=_rendered(lambda: "".join(traceback.format_exception(error)), MAX_TRACEBACK_CHARS),
    )


def storable(text: str, limit: int) -> str:
    """Return `text` as PostgreSQL can hold it: NUL shown as U+2400, lone surrogates as U+FFFD, the middle cut."""
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
    return _SURROGATE.sub("\ufffd", text.replace("\x00", "\u2400"))


def _rendered(render: Any, limit: int) -> str:
    try:
        return storable(str.__str__(render()), limit)
    except BaseException:  # a __str__ of the user's may raise anything; the outcome must still be stored
        return "<could not be rendered>"

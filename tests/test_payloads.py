"""What may be enqueued, and renderings of outcomes that PostgreSQL takes whatever a job raised."""

import collections
import datetime
import enum
import json
import math
import sys
import uuid
from decimal import Decimal

import pytest
from django.db import connection, transaction
from django.utils.safestring import SafeString
from hypothesis import given, settings
from hypothesis import strategies as st

from django_pgqueue import leases, outcomes
from django_pgqueue.exceptions import InvalidPayload
from django_pgqueue.models import Failure
from django_pgqueue.payloads import (
    MAX_DEPTH,
    MAX_MESSAGE_CHARS,
    MAX_PAYLOAD_BYTES,
    MAX_TRACEBACK_CHARS,
    arguments_in,
    decode_payload,
    encode_payload,
    encode_result,
    render_exception,
    storable,
)
from tests.races.tools import claim_one, new_job, row

NUL = chr(0)
SIX_CHARACTERS = "\\u0000"
STORABLE_TEXTS = [
    SIX_CHARACTERS,
    f"{SIX_CHARACTERS}1.0",
    "\\ud800",
    "emoji 🙂 and 👩‍🚀",
    "\x7f",
    "\x01\x1f\u2028\ufeff\uffff",
    "",
    "'; DROP TABLE x; --",
    '"quoted"',
    "%s %(x)s {y}",
    "e\u0301 é",
]
UNSTORABLE_TEXTS = {
    NUL: "NUL",
    f"a{NUL}b": "NUL",
    "\ud800": "surrogate",
    "x\udcff": "surrogate",
    "\udc00\ud800": "surrogate",
}
PLACES = {
    "an argument": (lambda text: ((text,), {}), r"args\[0\]"),
    "a keyword argument": (lambda text: ((), {"a": text}), r"kwargs\['a'\]"),
    "a keyword": (lambda text: ((), {text: 1}), "the name of kwargs"),
    "a key": (lambda text: (({text: 1},), {}), r"a key of args\[0\]"),
    "a nested value": (lambda text: ((1, [{"a": [text]}]), {}), r"args\[1\]\[0\]\['a'\]\[0\]"),
    "a nested key": (lambda text: ((), {"k": {"a": [{text: 1}]}}), r"a key of kwargs\['k'\]\['a'\]\[0\]"),
}


def through_postgres(text):
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::jsonb::text", [text])
        return cursor.fetchone()[0]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", UNSTORABLE_TEXTS, ids=ascii)
def test_text_that_postgresql_cannot_hold_is_refused_naming_where_it_stands(place, text):
    """NUL and lone surrogates, in values and in keys, before any SQL. Reports 31 and 154."""
    build, named = PLACES[place]
    with pytest.raises(InvalidPayload, match=f"{named}.* {UNSTORABLE_TEXTS[text]}") as refused:
        encode_payload(*build(text))
    str(refused.value).encode()


@pytest.mark.django_db
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", STORABLE_TEXTS, ids=ascii)
def test_every_other_text_comes_back_as_it_was(place, text):
    """The literal six characters, paired surrogates and control characters are ordinary text. Report 154."""
    args, kwargs = PLACES[place][0](text)
    assert decode_payload(through_postgres(encode_payload(args, kwargs))) == (list(args), kwargs)


@pytest.mark.django_db
def test_a_refusal_leaves_the_caller_s_transaction_usable():
    """The error comes before any SQL. Report 31."""
    with transaction.atomic():
        with pytest.raises(InvalidPayload):
            encode_payload([NUL], {})
        assert row(new_job()).state == "ready"


class Colour(enum.Enum):
    RED = "red"


REFUSED_VALUES = [
    uuid.UUID(int=1),
    datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    datetime.date(2026, 1, 1),
    datetime.timedelta(1),
    Decimal("1.10"),
    {1, 2},
    frozenset(),
    (1, 2),
    b"bytes",
    bytearray(),
    1j,
    object(),
    Colour.RED,
    range(3),
    collections.deque(),
    iter(()),
    print,
    int,
]


@pytest.mark.parametrize("value", REFUSED_VALUES, ids=lambda value: type(value).__name__)
def test_a_type_that_json_does_not_have_is_refused_naming_place_and_type(value):
    """Never a silent change of type; a tuple would come back as a list. Report 101."""
    named = f"{type(value).__module__}.{type(value).__qualname__}"
    for args, kwargs, place in (
        ([value], {}, "args[0]"),
        ([], {"key": value}, "kwargs['key']"),
        ([{"a": [1, value]}], {}, "args[0]['a'][1]"),
    ):
        with pytest.raises(InvalidPayload) as refused:
            encode_payload(args, kwargs)
        assert f"{place} is a {named}" in str(refused.value)


@pytest.mark.parametrize("key", [1, 1.5, None, True, uuid.UUID(int=1), ("a",), b"k"], ids=repr)
def test_a_key_that_json_would_turn_into_text_is_refused(key):
    """As a dict key too. Report 101."""
    with pytest.raises(InvalidPayload, match=r"args\[0\] has the key .* JSON keys are str"):
        encode_payload([{key: 1}], {})


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_have_are_refused(number):
    """Python writes them, PostgreSQL refuses them. Report 32."""
    with pytest.raises(InvalidPayload, match=r"args\[0\]\['x'\] is (nan|inf|-inf), which JSON cannot hold"):
        encode_payload([{"x": number}], {})
    with pytest.raises(InvalidPayload, match="the return value"):
        encode_result({"x": number})


@pytest.mark.django_db
@pytest.mark.parametrize(
    "number",
    [
        0,
        -1,
        2**63,
        -(2**64),
        10**4000,
        0.1,
        1.0,
        -2.5,
        5e-324,
        sys.float_info.max,
        1e16,
        1e23,
        2.0**70,
        True,
        None,
    ],
    ids=lambda number: str(number)[:20],
)
def test_numbers_come_back_with_value_and_type(number):
    ((back,), _) = decode_payload(through_postgres(encode_payload([number], {})))
    assert back == number
    assert type(back) is type(number)


def test_a_number_too_long_to_write_is_refused():
    with pytest.raises(InvalidPayload, match="cannot be written as JSON"):
        encode_payload([10**5000], {})


def nested(depth, kind=list):
    value = 1
    for _ in range(depth):
        value = [value] if kind is list else {"k": value}
    return value


@pytest.mark.django_db
@pytest.mark.parametrize("kind", [list, dict])
def test_nesting_is_bounded_and_what_is_allowed_can_be_stored(kind):
    deepest = encode_payload([nested(MAX_DEPTH, kind)], {})
    assert decode_payload(through_postgres(deepest))[0] == [nested(MAX_DEPTH, kind)]
    for depth in (MAX_DEPTH + 2, 100_000):
        with pytest.raises(InvalidPayload, match=f"nested more than {MAX_DEPTH} levels") as refused:
            encode_payload([nested(depth, kind)], {})
        assert len(str(refused.value)) < 1000


def test_a_structure_that_contains_itself_is_refused():
    """Report 33."""
    circle = []
    circle.append(circle)
    with pytest.raises(InvalidPayload):
        encode_payload([circle], {})
    with pytest.raises(InvalidPayload):
        encode_result({"a": circle})


def test_the_size_is_bounded_in_bytes_not_in_characters():
    """A stated limit with a clear error. Report 149."""
    assert len(encode_payload(["x" * (MAX_PAYLOAD_BYTES - 100)], {})) < MAX_PAYLOAD_BYTES
    for text in ("x" * MAX_PAYLOAD_BYTES, "é" * (MAX_PAYLOAD_BYTES // 2), "🙂" * (MAX_PAYLOAD_BYTES // 4)):
        with pytest.raises(InvalidPayload, match=f"more than {MAX_PAYLOAD_BYTES}; pass a reference"):
            encode_payload([text], {})
        with pytest.raises(InvalidPayload, match="the return value"):
            encode_result(text)


@pytest.mark.django_db
def test_a_return_value_may_hold_tuples_and_none_is_no_result():
    assert encode_result(None) is None
    assert json.loads(through_postgres(encode_result((1, {"a": (2,)})))) == [1, {"a": [2]}]


@pytest.mark.parametrize(
    "value",
    [{1}, b"x", object(), {"a": NUL}, {NUL: 1}, ["\ud800"], Decimal(1)],
    ids=["set", "bytes", "object", "NUL", "NUL key", "surrogate", "Decimal"],
)
def test_a_return_value_that_cannot_be_stored_is_refused_as_one(value):
    """The worker then records a failure; the job never stays running. Reports 29 and 32."""
    with pytest.raises(InvalidPayload, match="the return value"):
        encode_result(value)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number + 0.0)  # -0.0 loses its sign
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters=NUL)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters=NUL)), inner, max_size=4
        )
    ),
    max_leaves=15,
)


def types_of(value):
    if isinstance(value, dict):
        return {key: types_of(item) for key, item in value.items()}
    return [types_of(item) for item in value] if isinstance(value, list) else type(value)


@pytest.mark.django_db
@settings(max_examples=150, deadline=None, database=None)
@given(value=json_values)
def test_whatever_is_accepted_comes_back_equal_and_of_the_same_types(value):
    args, kwargs = decode_payload(through_postgres(encode_payload([value], {"k": value})))
    assert args == [value] == [kwargs["k"]]
    assert types_of(args) == types_of([value])


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "1",
        "null",
        '"x"',
        '{"args": {}}',
        '{"kwargs": []}',
        '{"args": null}',
        '{"args": 1, "kwargs": {}}',
    ],
)
def test_a_payload_of_another_shape_is_refused_for_running_and_empty_for_showing(text):
    """Plain SQL may have written it."""
    with pytest.raises(InvalidPayload, match="the payload must be"):
        decode_payload(text)
    assert arguments_in(json.loads(text)) == ([], {})


@pytest.mark.parametrize("text", ["{}", '{"args": []}', '{"kwargs": {}}'])
def test_a_payload_without_one_of_its_parts_has_no_such_arguments(text):
    assert decode_payload(text) == ([], {})


def test_text_that_only_looks_special_is_text():
    """A SafeString is stored as the text it is. Report 153."""
    assert decode_payload(encode_payload([SafeString("<b>")], {})) == (["<b>"], {})


class StrRaises(Exception):
    def __str__(self):
        raise RuntimeError("__str__")


class StrExits(Exception):
    def __str__(self):
        raise SystemExit(3)


class StrIsNoText(Exception):
    def __str__(self):
        return 42


class SneakyText(str):
    __slots__ = ()

    def replace(self, *args):
        raise RuntimeError("a method of the user's")

    __len__ = __getitem__ = replace


class StrIsASubclass(Exception):
    def __str__(self):
        return SneakyText(f"sneaky {NUL}")


class ReprRaises:
    def __repr__(self):
        raise RuntimeError("__repr__")


class NameRaises(type):
    @property
    def __module__(cls):
        raise RuntimeError("__module__")


class Nameless(Exception, metaclass=NameRaises):
    pass


def cyclic():
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    one.__context__ = one
    return one


def long_chain():
    error = ValueError("first")
    for number in range(2000):
        newer = ValueError(number)
        newer.__cause__ = error
        error = newer
    return error


def deep_group(depth):
    error = ValueError("innermost")
    for number in range(depth):
        error = ExceptionGroup(f"level {number}", [error])
    return error


def recursion():
    def again():
        again()

    try:
        again()
    except RecursionError as error:
        return error


def with_notes():
    error = ValueError("noted")
    error.add_note(f"a note with {NUL} and \ud800")
    error.__notes__.append(ReprRaises())
    return error


def wrong_syntax():
    try:
        compile(f"x = '{'y' * 100_000}' +* 1", f"file{chr(0xDCFF)}", "exec")
    except SyntaxError as error:
        return error


def named_at_length():
    class Named(Exception):
        pass

    Named.__qualname__ = "N" * 10_000
    Named.__module__ = f"{NUL}\ud800"
    return Named("x")


OUTRAGES = {
    "NUL": lambda: ValueError(f"a{NUL}b"),
    "NUL in a key": lambda: KeyError({NUL: NUL}),
    "lone surrogate": lambda: ValueError("\ud800"),
    "undecodable": lambda: ValueError(b"\xff\xfe".decode("utf-8", "surrogateescape")),
    "bytes": lambda: ValueError(b"\x00\xff"),
    "__str__ raises": StrRaises,
    "__str__ exits": StrExits,
    "__str__ is no text": StrIsNoText,
    "__str__ is a subclass": StrIsASubclass,
    "args unprintable": lambda: ValueError(ReprRaises(), 1),
    "50 MB": lambda: ValueError("x" * 50_000_000),
    "50 MB of NUL": lambda: ValueError(NUL * 50_000_000),
    "12 million emoji": lambda: ValueError("🙂" * 12_000_000),
    "cyclic cause": cyclic,
    "chain of 2000": long_chain,
    "group of 50": lambda: deep_group(50),
    "group of 5000": lambda: deep_group(5000),
    "group of many": lambda: ExceptionGroup("many", [ValueError("x" * 1000)] * 5000),
    "recursion": recursion,
    "notes": with_notes,
    "syntax": wrong_syntax,
    "class without a name": lambda: Nameless("x"),
    "class of any name": named_at_length,
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("outrage", OUTRAGES)
def test_whatever_a_job_raises_is_rendered_in_bounds_and_stored(outrage):
    """Rendering never raises, and PostgreSQL takes the whole of it. Reports 29, 30, 33, 34 and 39."""
    error = OUTRAGES[outrage]()
    text = render_exception(error)
    assert len(text.exception_class) <= 600
    assert len(text.message) <= MAX_MESSAGE_CHARS + 100
    assert len(text.traceback) <= MAX_TRACEBACK_CHARS + 100

    job_id = new_job()
    assert outcomes.fail(claim_one(), error) == "accepted"
    assert row(job_id).state == "failed"
    failure = Failure.objects.get()
    assert (failure.exception_class, failure.message) == (text.exception_class, text.message)
    assert failure.traceback == text.traceback
    new_job()
    assert len(leases.claim(worker="next")) == 1


def test_a_rendering_says_what_was_raised_and_where():
    try:
        raise ValueError("wrong") from KeyError("cause")
    except ValueError as error:
        text = render_exception(error)
    assert (text.exception_class, text.message) == ("builtins.ValueError", "wrong")
    assert "KeyError: 'cause'" in text.traceback
    assert "raise ValueError" in text.traceback


def test_a_rendering_shows_no_local_variables():
    """Tracebacks do not dump locals. Report 127."""
    try:
        secret = "hunter2-marker"
        raise ValueError(len(secret))
    except ValueError as error:
        assert "hunter2-marker" not in render_exception(error).traceback.replace(
            'secret = "hunter2-marker"', ""
        )


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("plain", "plain"),
        (NUL, "\u2400"),
        ("a\ud800b", "a\ufffdb"),
        ("🙂", "🙂"),
        (SIX_CHARACTERS, SIX_CHARACTERS),
        ("\x7f", "\x7f"),
    ],
    ids=ascii,
)
def test_exactly_nul_and_lone_surrogates_are_replaced_visibly(text, stored):
    """Reports 29 and 154."""
    assert storable(text, 100) == stored


def test_a_long_text_is_cut_in_the_middle_and_says_so():
    """Both its ends tell most. Report 34."""
    cut = storable(f"begin{'x' * 10_000}end", 100)
    assert cut.startswith("begin")
    assert cut.endswith("end")
    assert "9908 characters left out" in cut
    assert len(cut) < 150

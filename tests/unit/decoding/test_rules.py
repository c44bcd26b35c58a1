"""Every verdict on the bytes of a record, and that no bytes can do anything but earn a verdict."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventveil.decoding.places import compile_pointer
from eventveil.decoding.rules import Decoder, Event, Reason, Rejection, parse
from tests.unit.support import event, stream

LIMIT = 1_000_000
# RFC 6901, section 5, the document and what each pointer evaluates to.
RFC_DOCUMENT = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
}
RFC_POINTERS: dict[str, Any] = {
    "": RFC_DOCUMENT,
    "/foo": ["bar", "baz"],
    "/foo/0": "bar",
    "/": 0,
    "/a~1b": 1,
    "/c%d": 2,
    "/e^f": 3,
    "/g|h": 4,
    "/i\\j": 5,
    '/k"l': 6,
    "/ ": 7,
    "/m~0n": 8,
}


def decoder(**changes: Any) -> Decoder:
    one = stream(**changes)
    return Decoder(one.source, one.counts)


def verdict(value: bytes | None, **changes: Any) -> Event | Rejection:
    document = parse(value, LIMIT)
    return document if isinstance(document, Rejection) else decoder(**changes).decode(document)


def reason(value: bytes | None, **changes: Any) -> Reason | None:
    found = verdict(value, **changes)
    return found.reason if isinstance(found, Rejection) else None


def test_a_good_event_becomes_user_bytes_column_index_and_milliseconds() -> None:
    assert verdict(event("zoë", "b", 1234)) == Event("zoë".encode(), 1, 1234)


def test_a_time_may_be_written_as_rfc_3339() -> None:
    assert verdict(event(time="1970-01-01T00:00:01.5Z")) == Event(b"u", 0, 1500)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, Reason.TOMBSTONE),
        (b"", Reason.NOT_JSON),
        (b" ", Reason.NOT_JSON),
        (b"{", Reason.NOT_JSON),
        (b"user=1", Reason.NOT_JSON),
        (b"NaN", Reason.NOT_JSON),
        (b"{'user': 1}", Reason.NOT_JSON),
        (event() + b"x", Reason.NOT_JSON),
        (b"\xef\xbb\xbf" + event(), Reason.NOT_JSON),
        (b'{"user":"\xff","column":"a","time":1}', Reason.NOT_JSON),
        (b'{"user":"\\ud800","column":"a","time":1}', Reason.NOT_JSON),
        (b'{"user":"\\udc00\\ud800","column":"a","time":1}', Reason.NOT_JSON),
        (b"[" * 100_000 + b"]" * 100_000, Reason.NOT_JSON),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, Reason.NOT_JSON),
        (b"[]", Reason.MISSING_FIELD),
        (b"null", Reason.MISSING_FIELD),
        (b"7", Reason.MISSING_FIELD),
        (b'"user"', Reason.MISSING_FIELD),
        (b'{"column":"a","time":1}', Reason.MISSING_FIELD),
        (b'{"user":"u","time":1}', Reason.MISSING_FIELD),
        (b'{"user":"u","column":"a"}', Reason.MISSING_FIELD),
        (event(user=None), Reason.WRONG_TYPE),
        (event(user=7), Reason.WRONG_TYPE),
        (event(user=["u"]), Reason.WRONG_TYPE),
        (event(user=True), Reason.WRONG_TYPE),
        (event(column=1), Reason.WRONG_TYPE),
        (event(column=None), Reason.WRONG_TYPE),
        (event(time=True), Reason.WRONG_TYPE),
        (event(time=None), Reason.WRONG_TYPE),
        (event(time=1.0), Reason.WRONG_TYPE),
        (event(time={}), Reason.WRONG_TYPE),
        (event(user=""), Reason.EMPTY_USER),
        (event(column="c"), Reason.UNKNOWN_COLUMN),
        (event(column=""), Reason.UNKNOWN_COLUMN),
        (event(column="A"), Reason.UNKNOWN_COLUMN),
        (event(time="yesterday"), Reason.TIME_UNREADABLE),
        (event(time=""), Reason.TIME_UNREADABLE),
        (event(time="2013-01-01T00:00:00"), Reason.TIME_UNREADABLE),
        (event(time=2**53), Reason.TIME_UNREADABLE),
        (event(time=-(2**53)), Reason.TIME_UNREADABLE),
        (event(time=2**64 - 1), Reason.TIME_UNREADABLE),
        (b'{"user":"u","column":"a","time":18446744073709551616}', Reason.WRONG_TYPE),
        (event(time=2**53 - 1), None),
        (event(time=0), None),
    ],
)
def test_each_flaw_has_its_reason(value: bytes | None, expected: Reason | None) -> None:
    assert reason(value) == expected


def test_a_record_is_too_large_only_above_the_limit() -> None:
    value = event()
    assert parse(value, len(value)) == orjson.loads(value)
    rejection = parse(value, len(value) - 1)
    assert isinstance(rejection, Rejection)
    assert rejection.reason is Reason.TOO_LARGE


def test_an_oversized_record_is_not_even_parsed() -> None:
    rejection = parse(b"[" * (LIMIT + 1), LIMIT)
    assert isinstance(rejection, Rejection)
    assert rejection.reason is Reason.TOO_LARGE


def test_of_duplicate_keys_the_last_one_counts() -> None:
    value = b'{"user":"x","user":"y","column":"b","column":"a","time":1,"time":2}'
    assert verdict(value) == Event(b"y", 0, 2)


def test_the_user_is_judged_before_the_column_and_the_column_before_the_time() -> None:
    assert reason(event(user="", column="zz", time="never")) is Reason.EMPTY_USER
    assert reason(event(column="zz", time="never")) is Reason.UNKNOWN_COLUMN


@pytest.mark.parametrize("user", [True, "7", 1.0, 2**64, None, [7]])
def test_an_integer_user_is_an_integer_and_nothing_like_it(user: Any) -> None:
    value = b'{"user":%s,"column":"a","time":1}' % (
        b"18446744073709551616" if user == 2**64 else orjson.dumps(user)
    )
    assert reason(value, user_type="integer") is Reason.WRONG_TYPE


@pytest.mark.parametrize(
    ("user", "canonical"), [(0, b"0"), (7, b"7"), (-12, b"-12"), (2**64 - 1, b"18446744073709551615")]
)
def test_an_integer_user_is_known_by_its_decimal_digits(user: int, canonical: bytes) -> None:
    assert verdict(event(user=user), user_type="integer") == Event(canonical, 0, 1000)


def test_minus_zero_is_the_same_integer_user_as_zero() -> None:
    assert verdict(b'{"user":-0,"column":"a","time":1}', user_type="integer") == Event(b"0", 0, 1)


def test_users_are_compared_as_they_are_without_unicode_normalisation_or_trimming() -> None:
    users = ["é", "e\u0301", " u", "u", "U", "\u0000"]
    found = [verdict(event(user)) for user in users]
    assert [one.user for one in found if isinstance(one, Event)] == [user.encode() for user in users]


@pytest.mark.parametrize("column", [True, "1", 1.0])
def test_an_integer_column_is_an_integer_and_nothing_like_it(column: Any) -> None:
    changes = {"labels": ("1", "True"), "column_type": "integer"}
    assert reason(event(column=column), **changes) is Reason.WRONG_TYPE


def test_an_integer_column_finds_its_label() -> None:
    assert verdict(event(column=-7), labels=("7", "-7"), column_type="integer") == Event(b"u", 1, 1000)


def test_an_unknown_column_is_ignored_if_the_topology_says_so() -> None:
    assert verdict(event(column="zz"), unknown="ignore") == Event(b"u", None, 1000)


def test_an_unknown_column_falls_into_the_column_that_takes_the_unknown() -> None:
    changes = {"unknown": "column", "unknown_column": 1}
    assert verdict(event(column="zz"), **changes) == Event(b"u", 1, 1000)
    assert verdict(event(column="a"), **changes) == Event(b"u", 0, 1000)


def test_neither_ignoring_nor_collecting_unknown_columns_excuses_a_wrong_type() -> None:
    assert reason(event(column=1), unknown="ignore") is Reason.WRONG_TYPE
    assert reason(event(column=None), unknown="column", unknown_column=1) is Reason.WRONG_TYPE


def test_a_huge_foreign_value_is_cut_in_the_detail() -> None:
    for value in (event(column="x" * 100_000), event(time="x" * 100_000)):
        rejection = verdict(value)
        assert isinstance(rejection, Rejection)
        assert len(rejection.detail) < 400


@pytest.mark.parametrize(("pointer", "expected"), RFC_POINTERS.items())
def test_the_pointers_of_rfc_6901_find_what_the_rfc_says(pointer: str, expected: Any) -> None:
    assert compile_pointer(pointer)(RFC_DOCUMENT) == expected


@pytest.mark.parametrize(
    ("pointer", "document", "expected"),
    [
        ("/~01", {"~1": "tilde one", "/": "slash"}, "tilde one"),
        ("/~1~0", {"/~": 1}, 1),
        ("//", {"": {"": "deep"}}, "deep"),
        ("/a//b", {"a": {"": {"b": 1}}}, 1),
        ("/0", {"0": "key"}, "key"),
        ("/01", {"01": "key"}, "key"),
        ("/10", list(range(11)), 10),
        ("/a/1/b", {"a": [0, {"b": "found"}]}, "found"),
    ],
)
def test_a_pointer_finds(pointer: str, document: Any, expected: Any) -> None:
    assert compile_pointer(pointer)(document) == expected


@pytest.mark.parametrize(
    ("pointer", "document"),
    [
        ("/00", [1, 2]),
        ("/01", [1, 2]),
        ("/-1", [1, 2]),
        ("/+1", [1, 2]),
        ("/ 1", [1, 2]),
        ("/-", [1, 2]),
        ("/2", [1, 2]),
        ("/", [1, 2]),
        ("/1.0", [1, 2]),
        ("/1e0", [1, 2]),
        ("/\u0661", [1, 2]),  # a digit, but not of ASCII
        ("/²", [1, 2, 3]),
        ("/99999999999999999999999", [1]),
        ("/a", {}),
        ("/a/b", {"a": "b"}),
        ("/0", "text"),
        ("/0", None),
        ("/a", {"A": 1}),
    ],
)
def test_a_pointer_finds_nothing(pointer: str, document: Any) -> None:
    one = decoder(user=pointer)
    found = one.user(document)
    assert isinstance(found, Rejection)
    assert found.reason is Reason.MISSING_FIELD


def test_fields_may_lie_deep_inside_arrays() -> None:
    value = orjson.dumps({"who": [{"id": "u"}], "what": {"a/b": "b"}, "": 5})
    assert verdict(value, user="/who/0/id", column="/what/a~1b", time="/") == Event(b"u", 1, 5)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)
NEARLY_AN_EVENT = st.fixed_dictionaries(
    {}, optional={"user": ANY_JSON, "column": st.just("a") | ANY_JSON, "time": ANY_JSON}
)


@settings(max_examples=400, deadline=None)
@given(st.binary() | ANY_JSON.map(orjson.dumps) | NEARLY_AN_EVENT.map(orjson.dumps))
def test_any_bytes_get_a_verdict_and_never_an_error(value: bytes) -> None:
    assert isinstance(verdict(value), Event | Rejection)
    assert isinstance(verdict(value, user_type="integer", unknown="ignore"), Event | Rejection)


@settings(max_examples=200, deadline=None)
@given(
    st.text(alphabet="0123456789-:TtZz+. ", max_size=35) | st.datetimes().map(lambda t: t.isoformat() + "Z")
)
def test_any_text_for_a_time_gets_a_verdict_and_never_an_error(text: str) -> None:
    assert isinstance(verdict(event(time=text)), Event | Rejection)

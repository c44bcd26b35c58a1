"""What a stream can say of its events beside single fields: parts of the record, filters, maps and clocks."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventveil.counting.assigner import Assigner, Rows
from eventveil.counting.users import Users
from eventveil.decoding.bulk import FILTERED, IGNORED, BulkReader, fields_of
from eventveil.decoding.places import MISSING, Envelope, compile_field, compile_first
from eventveil.decoding.rules import Decoder, Event, Reason, Rejection, parse, weigh
from eventveil.model.fields import joined
from eventveil.model.records import NO_APPEND_TIME, NO_OWN_TIME, Headers
from eventveil.model.topology import Condition, Discover, NameMap, Source, Stream
from tests.fuzz.ways import WAYS, read_by
from tests.unit.support import stream

LIMIT = 1_000_000
HEADERS = (("type", b"viewed"), ("env", b"test"), ("env", b"live"), ("broken", b"\xff"))
AROUND = Envelope(b"7", HEADERS, 1500)


def of(**changes: Any) -> Stream:
    where = {"user": "/user", "column": "/to", "time": "/at"}
    return stream(**{"origin": -(2**50), "interval": 2**50, "max_ahead": 2**60, **where, **changes})


def decoded(document: Any, envelope: Envelope = AROUND, **changes: Any) -> Event | Rejection | None:
    one = of(**changes)
    return Decoder(one.source, one.counts).decode(document, envelope)


def event(**changes: Any) -> dict[str, Any]:
    return {"user": "u", "to": "a", "at": 1000, **changes}


@pytest.mark.parametrize(
    ("field", "found"),
    [
        ("$key", "7"),
        ("$time", 1500),
        ("$value", {"a": [1]}),
        ("$headers/type", "viewed"),
        ("$headers/env", "live"),
        ("$headers/broken", b"\xff"),
        ("$headers/none", MISSING),
        ("/a/0", 1),
        ("/b", MISSING),
    ],
)
def test_a_field_is_in_the_value_or_around_it_and_of_equal_headers_the_last(field: str, found: Any) -> None:
    assert compile_field(field)({"a": [1]}, AROUND) == found


def test_a_record_without_key_header_or_append_time_lacks_them() -> None:
    bare = Envelope(None, (("type", None),), NO_APPEND_TIME)  # type: ignore[arg-type]
    for field in ("$key", "$headers/type", "$time"):
        assert compile_field(field)({}, bare) is MISSING


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ({"a": 1, "b": 2}, 1),
        ({"a": None, "b": 2}, 2),
        ({"a": "", "b": 2}, 2),
        ({"b": 0}, 0),
        ({}, "7"),
        ({"a": {}}, {}),
    ],
)
def test_of_several_fields_the_first_counts_that_is_there_and_not_empty(document: Any, found: Any) -> None:
    assert compile_first(["/a", "/b", "$key"])(document, AROUND) == found


def test_a_number_and_the_same_digits_as_text_are_one_user_only_where_either_may_come() -> None:
    either = {"user_type": "either"}
    assert decoded(event(user=7), **either) == decoded(event(user="7"), **either) == Event(b"7", 0, 1000)
    assert decoded(event(user="07"), **either) == Event(b"07", 0, 1000)
    for wrong in (7.0, True, None, [7]):
        found = decoded(event(user=wrong), **either)
        assert isinstance(found, Rejection)
        assert found.reason is Reason.WRONG_TYPE
        assert "a string or an integer" in found.detail
    assert isinstance(decoded(event(user=7)), Rejection)
    assert isinstance(decoded(event(user="7"), user_type="integer"), Rejection)


def test_an_event_can_be_all_around_its_value_which_is_then_not_looked_at() -> None:
    one = of(user="$key", column="$headers/type", time="$time", labels=("viewed",))
    decoder = Decoder(one.source, one.counts)
    assert not decoder.reads_value
    assert decoder.decode(None, AROUND) == Event(b"7", 0, 1500)
    assert decoder.decode(None, AROUND._replace(key=b"")) == Rejection(
        Reason.EMPTY_USER, "the user at $key is empty"
    )
    assert decoder.decode(None, AROUND._replace(key=b"\xff")) == Rejection(
        Reason.WRONG_TYPE, "the user at $key should be a string, not bytes"
    )


@pytest.mark.parametrize(
    ("condition", "passes"),
    [
        (Condition("/kind", "in", ("viewed",)), True),
        (Condition("/kind", "in", ("bought", "viewed")), True),
        (Condition("/kind", "not-in", ("viewed",)), False),
        (Condition("/none", "in", ("viewed",)), False),
        (Condition("/none", "not-in", ("viewed",)), True),
        (Condition("/seven", "in", ("7",)), False),
        (Condition("/seven", "in", (7,)), True),
        (Condition("/one", "in", (True,)), False),
        (Condition("/true", "in", (1,)), False),
        (Condition("/true", "in", (True,)), True),
        (Condition("/float", "in", (7,)), False),
        (Condition("/list", "in", (7,)), False),
        (Condition("/null", "present"), False),
        (Condition("/null", "absent"), True),
        (Condition("/kind", "present"), True),
        (Condition("$headers/env", "in", ("live",)), True),
        (Condition("$headers/env", "in", ("test",)), False),
        (Condition("$headers/none", "absent"), True),
        (Condition("$headers/broken", "not-in", ("x",)), True),
        (Condition("$key", "in", ("7",)), True),
    ],
)
def test_a_filter_compares_by_type_and_takes_null_for_nothing(condition: Condition, passes: bool) -> None:
    document = event(kind="viewed", seven=7, one=1, true=True, float=7.0, list=[7], null=None)
    one = of(filter=(condition,))
    decoder = Decoder(one.source, one.counts)
    found = decoder.filter.passes_around(AROUND) and decoder.filter.passes_inside(document, AROUND)
    assert found == passes


def test_an_event_that_does_not_pass_is_judged_no_further() -> None:
    assert decoded({"user": 7}, filter=(Condition("/kind", "present"),)) is None


def test_a_column_of_several_fields_is_their_combination() -> None:
    changes: dict[str, Any] = {"column": joined(["/to", "/land"]), "labels": ("a|DE", "a|7", "b|DE")}
    assert decoded(event(land="DE"), **changes) == Event(b"u", 0, 1000)
    assert decoded(event(land=7), **changes) == decoded(event(land="7"), **changes) == Event(b"u", 1, 1000)
    for document, reason, detail in [
        (event(to="b", land="AT"), Reason.UNKNOWN_COLUMN, "'b|AT' is not a public column"),
        (event(to="b"), Reason.MISSING_FIELD, "no column at /land"),
        (
            event(land=None),
            Reason.WRONG_TYPE,
            "the column at /land should be a string or an integer, not NoneType",
        ),
    ]:
        assert decoded(document, **changes) == Rejection(reason, detail)


def test_no_two_combinations_have_one_name() -> None:
    changes: dict[str, Any] = {"column": joined(["/to", "/land"]), "labels": ("a|b", "other")}
    changes |= {"unknown": "column", "unknown_column": 1}
    assert decoded(event(to="a|b", land=""), **changes) == Event(b"u", 1, 1000)
    assert decoded(event(to="", land="a|b"), **changes) == Event(b"u", 1, 1000)
    assert decoded(event(to="a", land="b"), **changes) == Event(b"u", 0, 1000)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("/", "home"),
        ("/shoes", "rest"),
        ("/shoes/1", "shoes"),
        ("/shoes/kids/1", "kids"),
        ("", "rest"),
        (4, "four"),
    ],
)
def test_a_map_names_whole_texts_then_the_longest_prefix_then_the_rest(text: Any, label: str) -> None:
    names = NameMap(
        "/to", (("/", "home"), ("4", "four")), (("/shoes/", "shoes"), ("/shoes/kids/", "kids")), "rest"
    )
    labels = ("home", "shoes", "kids", "rest", "four")
    assert decoded(event(to=text), maps=(names,), labels=labels) == Event(b"u", labels.index(label), 1000)


def test_without_a_name_for_the_rest_a_text_stays_as_it_is() -> None:
    names = NameMap("/to", (("x", "a"),))
    assert (
        decoded(event(to="x"), maps=(names,)) == decoded(event(to="a"), maps=(names,)) == Event(b"u", 0, 1000)
    )


@pytest.mark.parametrize(
    ("unit", "at", "time"),
    [
        ("s", 1_700_000_000, 1_700_000_000_000),
        ("s", 1_700_000_000.1234, 1_700_000_000_123),
        ("s", -0.0004, 0),
        ("us", 1_999, 1),
        ("us", -1, -1),
        ("ns", 1_700_000_000_123_456_789, 1_700_000_000_123),
        ("ms", 5, 5),
    ],
)
def test_numbers_are_times_in_the_unit_that_is_said(unit: Any, at: float, time: int) -> None:
    assert decoded(event(at=at), time_unit=unit) == Event(b"u", 0, time)


@pytest.mark.parametrize(
    ("unit", "at", "reason"),
    [
        ("ms", 1.5, Reason.WRONG_TYPE),
        ("us", 1.5, Reason.WRONG_TYPE),
        ("s", "7", Reason.TIME_UNREADABLE),
        ("s", 2**53 // 1000 + 1, Reason.TIME_UNREADABLE),
        ("s", 1e300, Reason.TIME_UNREADABLE),
        ("s", True, Reason.WRONG_TYPE),
    ],
)
def test_what_is_no_number_of_the_unit_is_refused(unit: Any, at: Any, reason: Reason) -> None:
    found = decoded(event(at=at), time_unit=unit)
    assert isinstance(found, Rejection)
    assert found.reason is reason


def test_digits_in_a_header_are_a_number_and_the_brokers_time_is_in_milliseconds() -> None:
    header = Envelope(b"k", (("at", b"1700000000"),), 99)
    assert decoded(event(), header, time="$headers/at", time_unit="s") == Event(b"u", 0, 1_700_000_000_000)
    assert decoded(event(), header, time="$time", time_unit="s") == Event(b"u", 0, 99)
    several = joined(["/none", "$time"])
    assert decoded(event(), header, time=several, time_unit="s") == Event(b"u", 0, 99)


OWN = {"time": "$time", "append_time": "boundary", "own_time": True}


def test_without_append_times_the_records_own_time_is_the_events_and_never_the_other_way_round() -> None:
    both = Envelope(None, (), 7, 99)
    assert decoded(event(), both, **OWN, time_unit="s") == Event(b"u", 0, 99)
    assert decoded(event(), both, time="$time") == Event(b"u", 0, 7)
    several = {**OWN, "time": joined(["/at", "$time"])}
    assert decoded(event(), both, **several) == Event(b"u", 0, 1000)
    assert decoded({"user": "u", "to": "a"}, both, **several) == Event(b"u", 0, 99)
    # An append time is no substitute.
    bare = decoded(event(), Envelope(None, (), 7), **OWN)
    assert bare == Rejection(
        Reason.MISSING_FIELD,
        "no time at $time: the record carries none, or was re-keyed before a stream asked for it",
    )


@pytest.mark.parametrize("time", [2**53, -(2**53), 2**63 - 1, -(2**63)])
def test_an_own_time_that_is_no_time_is_refused_as_in_a_value(time: int) -> None:
    found = decoded(event(), Envelope(None, (), 7, time), **OWN)
    assert found == Rejection(Reason.TIME_UNREADABLE, f"{time} is not a time in epoch milliseconds")


@pytest.mark.parametrize("time", [0, -2, 2**53 - 1])
def test_every_other_own_time_is_taken_as_it_is(time: int) -> None:
    assert decoded(event(), Envelope(None, (), 7, time), **OWN) == Event(b"u", 0, time)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-07-01T12:00:00", "2026-07-01T10:00:00Z"),
        ("2026-01-01 12:00:00.25", "2026-01-01T11:00:00.25Z"),
        ("2026-01-01T12:00:00Z", "2026-01-01T12:00:00Z"),
        ("2026-01-01T12:00:00+05:00", "2026-01-01T07:00:00Z"),
        ("2026-10-25T02:30:00", "2026-10-25T00:30:00Z"),
        ("2026-10-25T03:00:00", "2026-10-25T02:00:00Z"),
        ("2026-03-29T03:00:00", "2026-03-29T01:00:00Z"),
    ],
)
def test_a_time_without_a_zone_is_that_of_clocks_there_and_the_first_of_two(text: str, utc: str) -> None:
    assert decoded(event(at=text), time_zone="Europe/Berlin") == decoded(event(at=utc))


@pytest.mark.parametrize(
    "text",
    ["2026-03-29T02:00:00", "2026-03-29T02:59:59.999", "2026-02-30T00:00:00", "1", "0001-01-01T00:00:00"],
)
def test_a_time_that_clocks_leave_out_cannot_be_read(text: str) -> None:
    found = decoded(event(at=text), time_zone="Europe/Berlin")
    assert isinstance(found, Rejection)
    assert found.reason is Reason.TIME_UNREADABLE
    assert repr(text) in found.detail
    without = decoded(event(at="2026-07-01T12:00:00"))
    assert isinstance(without, Rejection)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"\0\0\0\0\7{}", {}),
        (b"\0\xff\xff\xff\xff[1]", [1]),
        (b"{}", None),
        (b"\1\0\0\0\7{}", None),
        (b"\0\0\0\0", None),
        (b"\0\0\0\0\7", None),
        (b"\0\0\0\0\7\0{}", None),
        (b"", None),
    ],
)
def test_the_prefix_of_a_registry_must_be_there_and_is_passed_over(value: bytes, found: Any) -> None:
    document = parse(value, LIMIT, "json-schema")
    if found is None:
        assert isinstance(document, Rejection)
        assert document.reason is Reason.NOT_JSON
    else:
        assert document == found
    plain = parse(value, LIMIT)
    assert (plain == {}) if value == b"{}" else isinstance(plain, Rejection)
    assert parse(None, LIMIT, "json-schema") == parse(None, LIMIT)


# Each event alone (I5)

_TEXTS = st.sampled_from(["a", "b", "7", "", "x/a", "x/y/b", "a|b", "viewed"])
_JSON = st.one_of(_TEXTS, st.integers(-2, 8), st.none(), st.booleans(), st.just(7.5), st.just([7]))
_BYTES = st.sampled_from([None, b"", b"7", b"a", b"viewed", b"\xff"])
_FIELDS = st.sampled_from(["/user", "/to", "/at", "/more", "$key", "$headers/h", "$value"])
_CONDITIONS = st.one_of(
    st.builds(Condition, _FIELDS, st.sampled_from(["present", "absent"])),
    st.builds(
        Condition,
        _FIELDS,
        st.sampled_from(["in", "not-in"]),
        st.lists(st.sampled_from(["a", "7", 7, True, "viewed"]), min_size=1).map(tuple),
    ),
)
_NAMES = st.tuples(_TEXTS, st.sampled_from(["a", "b", "c"]))
_MAPS = st.builds(
    NameMap,
    st.just("/to"),
    st.lists(_NAMES).map(tuple),
    st.lists(_NAMES).map(tuple),
    st.sampled_from([None, "a", "zzz"]),
)
_SEVERAL = st.lists(_FIELDS, min_size=1, max_size=3, unique=True).map(joined)
_SOURCES = st.fixed_dictionaries(
    {},
    optional={
        "user": _SEVERAL,
        "column": st.one_of(_FIELDS, st.just(joined(["/to", "/more"]))),
        "time": st.one_of(_SEVERAL, st.just("$time"), st.just(joined(["/at", "$time"]))),
        "user_type": st.sampled_from(["string", "integer", "either"]),
        "filter": st.lists(_CONDITIONS, max_size=2).map(tuple),
        "maps": _MAPS.map(lambda one: (one,)),
        "time_unit": st.sampled_from(["ms", "s", "us", "ns"]),
        "time_zone": st.sampled_from([None, "Europe/Berlin"]),
        "format": st.sampled_from(["json", "json-schema"]),
        "own_time": st.booleans(),
    },
)
_DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "user": _JSON,
        "to": _JSON,
        "more": _JSON,
        "at": st.one_of(_JSON, st.just("2026-03-29T02:30:00")),
    },
)
_VALUES = st.one_of(
    _DOCUMENTS.map(orjson.dumps),
    st.sampled_from([None, b"{", b"7", b"x" * 2000]),
    _DOCUMENTS.map(lambda one: b"\0\0\0\0\1" + orjson.dumps(one)),
)
_RECORDS = st.tuples(
    _VALUES,
    _BYTES,
    st.lists(st.tuples(st.just("h"), _BYTES.filter(lambda one: one is not None)), max_size=2),
    st.sampled_from([5, 1000, NO_APPEND_TIME]),
)
_Record = tuple[bytes | None, bytes | None, Headers, int]


def own_time(time: int) -> int:
    return 2**40 - time if time > 0 else NO_OWN_TIME


def known_users(one: Stream) -> tuple[bytes, ...]:
    known = (b"7", b"a", b"b", b"x/a", b"x/y/b", b"a|b", b"viewed")
    return known[: 1 if one.source.user_type == "integer" else None]


def by_rule(one: Stream, records: list[_Record]) -> list[tuple[Any, ...]]:
    """The same by the rule alone."""
    placer, decoder = Assigner(one, 1, 0, 1, Users(one.source, 1, 0)), Decoder(one.source, one.counts)
    return [_by_rule(placer, decoder, one, record) for record in records]


def _by_rule(placer: Assigner, decoder: Decoder, one: Stream, record: _Record) -> tuple[Any, ...]:
    value, key, headers, time = record
    around, most = Envelope(key, headers, time, own_time(time)), one.source.max_bytes
    if not decoder.filter.passes_around(around):
        return 0, FILTERED, 0
    document = parse(value, most, one.source.format) if decoder.reads_value else weigh(value, most)
    found = placer.verdict(0, time, document, 1, None, around)
    if found is None:
        return 0, FILTERED, 0
    if isinstance(found, Rejection):
        return found
    user = found.event.user if found.event.user in known_users(one) else "another"
    column = IGNORED if found.event.column is None else found.event.column
    return user, column, found.timestamp


def verdicts(one: Stream, records: list[_Record]) -> list[tuple[Any, ...]]:
    """What becomes of each record of a chunk."""
    users = Users(one.source, 1, 0)
    placer = Assigner(one, 1, 0, 1, users)
    values = [value for value, _, _, _ in records]
    reader = BulkReader(fields_of([(one.source, one.counts)]), one.source.max_bytes, one.source.format)
    rows = Rows(
        np.arange(len(records)),
        np.array([time for *_, time in records], np.int64),
        values,
        (),
        keys=[key for _, key, _, _ in records],
        headers=[headers for _, _, headers, _ in records],
        own_times=[own_time(time) for *_, time in records],
    )
    rows.parts = reader.read(values, rows.beside)
    all_placed, rejections = placer.place(rows, 0, 1, None)
    placed = all_placed.merged()
    found: dict[int, tuple[Any, ...]] = dict(rejections)
    names = {users.number(name): name for name in known_users(one)}
    for row, user, column, timestamp in zip(
        placed.rows.tolist(),
        placed.users.tolist(),
        placed.columns.tolist(),
        placed.timestamps.tolist(),
        strict=True,
    ):
        assert row not in found
        found[row] = (names.get(user, user if column == FILTERED else "another"), column, timestamp)
    assert len(found) == len(records)
    return [found[row] for row in range(len(records))]


def some_stream(source: dict[str, Any], unknown: str) -> Stream:
    labels = ("a|b", "b|7", "a|a") if str(source.get("column", "")).startswith("[") else ("a", "b", "c")
    return of(labels=labels, unknown=unknown, max_bytes=1000, **source)


@settings(max_examples=300, deadline=None)
@given(_SOURCES, st.lists(_RECORDS, min_size=1, max_size=12), st.sampled_from(["dead-letter", "ignore"]))
def test_what_becomes_of_a_record_depends_on_nothing_but_itself(
    source: dict[str, Any], records: list[_Record], unknown: str
) -> None:
    one = some_stream(source, unknown)
    together = verdicts(one, records)
    assert together == [verdicts(one, [record])[0] for record in records]
    assert together == verdicts(one, records[::-1])[::-1]


#: What is read in bulk in most of its forms: a single field each, in values or around them.
_SINGLE = st.fixed_dictionaries(
    {
        "user": st.sampled_from(["/user", "/user", "$key", "$headers/h", joined(["$key", "/user"])]),
        "column": st.sampled_from(["/to", "/to", "/to", "$headers/h", "$key", joined(["/to", "$headers/h"])]),
        "time": st.sampled_from(["/at", "/at", "$time"]),
    },
    optional={
        "user_type": st.sampled_from(["string", "integer", "either", "either"]),
        "filter": st.lists(_CONDITIONS, max_size=2).map(tuple),
        "time_unit": st.sampled_from(["s", "us", "ns"]),
        "time_zone": st.just("Europe/Berlin"),
        "format": st.just("json-schema"),
        "own_time": st.booleans(),
        "maps": _MAPS.map(lambda one: (one,)),
    },
)
_GOOD = st.fixed_dictionaries(
    {
        "user": st.sampled_from(["a", "b", "7", 7, 8, ""]),
        "to": st.sampled_from(["a", "b", "z"]),
        "at": st.sampled_from(
            [0, 4, -1, 5_000_000, 2**53, 2**53 // 1000, 2**63, "2026-03-29T02:30:00Z", 1.5]
        ),
    }
).map(orjson.dumps)
_READABLE = st.tuples(
    st.one_of(_GOOD, _GOOD, _GOOD.map(lambda one: b"\0\0\0\0\1" + one), _VALUES),
    _BYTES,
    st.lists(st.tuples(st.sampled_from(["h", "h", "i"]), _BYTES), max_size=3),
    st.sampled_from([5, 1000, 1000, 1000, NO_APPEND_TIME]),
)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=500, deadline=None)
@given(st.data())
def test_in_bulk_becomes_of_a_record_what_the_rule_says(way: str, data: st.DataObject) -> None:
    source = data.draw(st.one_of(_SINGLE, _SINGLE, _SOURCES))
    records = data.draw(st.lists(_READABLE, min_size=1, max_size=12))
    one = some_stream(source, data.draw(st.sampled_from(["dead-letter", "ignore"])))
    with read_by(way):
        assert verdicts(one, records) == by_rule(one, records)


@pytest.mark.parametrize("way", WAYS)
def test_an_integer_is_no_name_where_only_another_field_is_mapped(way: str) -> None:
    one = some_stream({"user": "/to", "column": "/user", "maps": (NameMap("/to"),)}, "dead-letter")
    records: list[_Record] = [(b'{"user":7,"to":"a","at":0}', None, [], 5)]
    with read_by(way):
        assert verdicts(one, records) == by_rule(one, records)


@settings(max_examples=200, deadline=None)
@given(_RECORDS)
def test_a_stream_with_a_filter_that_all_events_pass_has_the_verdicts_of_one_without(record: _Record) -> None:
    plain = of(max_bytes=1000)
    ruled = replace(plain, source=replace(plain.source, filter=(Condition("$headers/none", "absent"),)))
    alone = replace(plain, source=replace(plain.source, filter=(Condition("$time", "not-in", (7,)),)))
    assert verdicts(plain, [record] * 70) == verdicts(ruled, [record] * 70) == verdicts(alone, [record] * 70)


def test_a_source_that_asks_for_more_is_not_read_in_bulk() -> None:
    plain, counts = stream().source, stream().counts
    for change in (
        {"user": "$key", "user_type": "integer"},
        {"user": "$key", "column": "$headers/a", "time": "$time"},
        {"user": "$value"},
        {"column": "$value"},
        {"column": joined(["/a", "$value"])},
        {"time": joined(["/at", "$time"])},
        {"time": "$headers/at"},
        {"filter": (Condition("$value", "present"),)},
    ):
        source: Source = replace(plain, **change)  # type: ignore[arg-type]
        assert not source.in_bulk(counts), change
        assert fields_of([(source, counts)]) == {}
    found = replace(counts, discover=Discover(Fraction(1), Fraction(1, 10**9), Fraction(1, 2), 9, 9))
    for change in ({}, {"column": joined(["/a", "/b"])}, {"maps": (NameMap("/column"),)}):
        source = replace(plain, **change)  # type: ignore[arg-type]
        assert source.in_bulk(counts)
        assert source.in_bulk(found) == (not change)
    assert parse(b"{}", LIMIT) == {}

"""Bulk decoding: what it is sure of is what one-by-one decoding finds, whatever stands beside it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventveil.decoding import bulk
from eventveil.decoding.bulk import (
    IGNORED,
    UNSURE,
    UNSURE_TIME,
    BulkReader,
    ColumnFinder,
    Fields,
    NativeFields,
    Packed,
    as_array,
    fields_of,
)
from eventveil.model.timeline import parse_rfc3339
from tests.fuzz.decoding import MAX_BYTES, STREAMS, Comparison, everything, packed
from tests.fuzz.values import crafted, mutated, similar
from tests.fuzz.ways import WAYS, read_by
from tests.unit.support import event, stream


@pytest.fixture(autouse=True, params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every test with the kernel, and without."""
    with read_by(request.param):
        yield request.param


class Parts:
    """What was read in several parts, in the order of the rows."""

    def __init__(self, parts: list[Fields]) -> None:
        self._parts = parts
        self.rows = sorted(row for part in parts for row in part.rows.tolist())
        self.broken = sorted(row for part in parts for row in part.broken.tolist())

    def values(self, pointer: str) -> list[Any]:
        return self._ordered(lambda part: everything(part, pointer))

    def times(self, pointer: str) -> list[int]:
        return self._ordered(lambda part: part.times(pointer).tolist())

    def columns(self, finder: ColumnFinder) -> list[int]:
        return self._ordered(lambda part: as_array(finder(part)).tolist())

    def _ordered(self, of: Callable[[Fields], list[Any]]) -> list[Any]:
        found = [one for part in self._parts for one in zip(part.rows.tolist(), of(part), strict=True)]
        return [value for _, value in sorted(found, key=lambda one: one[0])]


def read(*values: bytes | None, max_bytes: int = 1_000_000, **changes: Any) -> Parts:
    one = stream(**changes)
    return Parts(BulkReader(fields_of([(one.source, one.counts)]), max_bytes).read(values))


@pytest.mark.parametrize("most", range(1, 9))
def test_a_value_behind_a_prefix_is_read_if_all_of_it_is_short_enough(most: int) -> None:
    reader = BulkReader({"": "either"}, most, "json-schema")
    wide = BulkReader({"/a": "string"}, most + 8, "json-schema")
    framed = [b"\0\0\0\0\1" + body for body in (b"", b"7", b"[]")]
    for values in (framed, packed(framed, Random(1))):
        told = [row for part in reader.read(values) for row in (*part.rows.tolist(), *part.broken.tolist())]
        assert all(len(framed[row]) <= most for row in told)
    assert [row for part in wide.read(framed) for row in part.broken.tolist()] == [0]


def rows(*values: bytes | None, **changes: Any) -> list[int]:
    return read(*values, **changes).rows


@pytest.mark.parametrize("one", STREAMS, ids=range(len(STREAMS)))
def test_crafted_and_mutated_values_are_decoded_in_bulk_as_they_are_alone(one: Any) -> None:
    comparison = Comparison(one)
    chance = Random(1)
    comparison.check(crafted())
    comparison.check(list(islice(mutated(chance), 2000)))
    for _ in range(100):
        comparison.check(similar(chance, 100))
    assert comparison.sure or one.source.user == ""
    # What is no JSON at a limit of the kernel's is left to the rules, and there is little of it.
    assert comparison.refused > 0.9 * comparison.broken or one.source.user == ""


#: By way, checks that could be missing, and what is there instead.
BLIND: dict[str, list[tuple[Any, str, Any]]] = {
    "plain": [
        (bulk, "UNSURE_TIME", 0),
        (bulk, "loads", lambda value: orjson.loads(value.replace(b"7.0", b"7"))),
        (bulk, "_TYPES", {kind: {str, int, float, bool} for kind in bulk._TYPES}),
    ],
    "kernel": [
        (bulk, "UNSURE_TIME", 0),
        (NativeFields, "_read_times", lambda self, pointer: np.zeros(len(self.rows), np.int64)),
        (NativeFields, "filled", lambda self, pointer: np.ones(len(self.rows), bool)),
    ],
}


def test_without_any_one_of_its_checks_the_comparison_finds_a_difference(way: str) -> None:
    for where, name, blind in BLIND[way]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(where, name, blind)
            with pytest.raises((AssertionError, TypeError)):
                _compare_all()


def _compare_all() -> None:
    for one in STREAMS:
        Comparison(one).check(crafted())


class Sliced(bytes):
    """Bytes that note how many of them were copied."""

    copied = 0

    def __getitem__(self, part: Any) -> Any:
        found = super().__getitem__(part)
        Sliced.copied += len(found) if isinstance(found, bytes) else 1
        return found


def test_a_null_in_a_run_copies_nothing_of_it() -> None:
    data = Sliced(b"first" + bytes(1_000_000) + b"last")
    starts, lengths = np.array([0, 0, 0, 1_000_005]), np.array([5, -1, -1, 4])
    assert [*Packed(data, starts, lengths)] == [b"first", None, None, b"last"]
    assert Sliced.copied < 100


def test_a_wanted_key_with_a_quote_is_found_only_where_it_is_escaped() -> None:
    values = [b'{"user":"u","time":1,"a%sb":"a","other":1}' % one for one in (b'"', b'\\"')]
    found = read(*values, column='/a"b')
    assert (found.rows, found.broken) == ([1], [0])


def test_distinct_values_come_in_the_order_of_the_first_of_each() -> None:
    times = [7, "x", "7", 2**60, "x", "", 7, "-7", -7, "é", 2**60, "7"]
    values = [event("u", "a", time) for time in times]
    (part,) = read(*values)._parts
    which, found = part.distinct("/time", np.arange(2, len(times)))
    assert [*found] == ["7", 2**60, "x", "", 7, "-7", -7, "é"]
    assert [found[place] for place in which.tolist()] == times[2:]
    which, found = part.distinct("/column", np.array([3, 0]))
    assert ([*found], which.tolist()) == (["a"], [0, 0])


def test_integers_of_any_number_of_digits_are_read() -> None:
    numbers = [sign * int("1234567890123456789"[:digits]) for digits in range(1, 19) for sign in (1, -1)]
    values = [b'{"user":%d,"column":"a","time":1}' % number for number in numbers]
    assert read(*values, user_type="integer").values("/user") == numbers
    broken = [value.replace(b"5", b"5:") for value in values if b"5" in value]
    assert read(*broken, user_type="integer").broken == [*range(len(broken))]


def test_no_place_of_a_text_hides_what_is_not_utf_8() -> None:
    texts = [b"x" * before + b"\xff" + b"x" * (16 - before) for before in range(17)]
    wanted = [b'{"user":"%s","column":"a","time":1}' % text for text in texts]
    others = [b'{"user":"u","column":"a","time":1,"%s":1,"last":"%s"}' % (text, text) for text in texts]
    keys = [b'{"%s":1,"user":"u","column":"a","time":1}' % text for text in texts]
    values = wanted + others + keys
    assert read(*values).broken == [*range(len(values))]
    assert rows(*(value.replace(b"\xff", "é".encode()) for value in values)) == [*range(len(values))]


def test_good_events_of_any_width_are_sure() -> None:
    values = [
        event("u", "a", 1),
        event("v" * 900, "b", 2),
        b' {"x":[1,{"y":"\\u00e9"}],' + event()[1:] + b"\n",
    ]
    found = read(*values, None, b"", event("w", "a", 3))
    assert found.rows == [0, 1, 2, 5]
    assert found.values("/user") == ["u", "v" * 900, "u", "w"]
    assert found.times("/time") == [1, 2, 1000, 3]


def test_plain_documents_are_sure_up_to_their_limits_and_others_are_what_orjson_says() -> None:
    plain = (
        b"7", b"-7", b"0.0", b"12.50", b"9" * 200, b"true", b"null", b'"' + "x\x7fé".encode() * 9 + b'"',
        b"[]", b"{}", b'[1, {"a":[ ] }\t,"b"]', b"[" * 98 + b"]" * 98,
    )  # fmt: skip
    unusual = (
        b"-0", b"1e3", b"9" * 201, b'"\\u00e9"', b'"\\/"', b'{"\\n":1}', b"9223372036854775808",
    )  # fmt: skip
    broken = (
        b"01", b"-", b"-a", b"1.", b".5", b"+1", b"1 2", b"tru", b"nulll", b"[1,]", b"[,1]", b"[1", b"{,}",
        b'{"a":1,}', b'{"a"}', b'{"a" 1}', b"{a:1}", b'"\x1f"', b'"1234567\n"', b'"\xff"', b'"\\x"', b"\x0b1",
        b"",
    )  # fmt: skip
    for value in (*plain, *unusual, *broken):
        # Strings are looked through by eight bytes: the inner one begins at each place of them.
        for shift in range(8):
            document = b'{"' + b"k" * shift + b'x":' + value + b"," + event("u", "b", 5)[1:]
            try:
                wanted = [orjson.loads(document)["user"]]
            except orjson.JSONDecodeError:
                wanted = []
            assert wanted == ([] if value in broken else ["u"])
            found = read(document)
            assert found.values("/user") in ([wanted] if value in plain else [wanted, []])
            assert found.broken == ([0] if value in broken else [])


def test_what_only_some_parsers_refuse_is_never_told_as_no_json() -> None:
    whole = event()
    for value in (
        b"1e999", b"-1e999", b"1" + b"0" * 400, b"0.1e310", b"-0", b"9223372036854775808",
        b"[" * 126 + b"]" * 126, b"[" * 200 + b"]" * 200, b'{"a":' * 200 + b"1" + b"}" * 200, b'"\\u0000"',
        b'"\\ud83d\\ude00"', b'"\\ud800"', b'"\\ud800\\u0041"', b'"\\udc00"', b'"\xed\xa0\x80"',
        b'{"a":1,"a":2}',
    ):  # fmt: skip
        for document in (
            value,
            whole[:-1] + b',"x":' + value + b"}",
            b"\xef\xbb\xbf" + whole,
            whole + b" \n",
        ):
            try:
                orjson.loads(document)
                told: list[list[int]] = [[]]
            except orjson.JSONDecodeError:
                told = [[], [0]]
            assert read(document).broken in told, document


def test_integers_of_a_field_are_read_to_their_limits() -> None:
    for number in (0, 7, -7, 10**17, 10**18 - 1, -(10**18) + 1, 10**18, 2**63 - 1, -(2**63)):
        found = read(event("u", number, 5), column_type="integer", labels=("7",))
        assert found.values("/column") == [number]
    assert rows(b'{"user":"u","column":-0,"time":5}', column_type="integer", labels=("7",)) in ([], [0])


def test_a_part_of_an_identifier_that_looks_like_a_large_number_does_no_harm() -> None:
    assert rows(event("7e0001"), event("9" * 300), event("1E+999")) == [0, 1, 2]


def test_a_wanted_key_that_comes_twice_counts_as_the_rules_have_it() -> None:
    twice = b'{"user":"u","column":"a","time":1,"user":"v"}'
    found = read(twice, event("w", "b", 2))
    assert found.rows in ([0, 1], [1])
    assert found.values("/user") == ["v", "w"][-len(found.rows) :]


def test_deep_and_large_values_are_left_to_the_rules() -> None:
    for depth in (50, 99, 127, 128, 1000, 100_000):
        for opening, closing in ((b"[", b"]"), (b'{"user":', b"}")):
            found = read(event()[:-1] + b',"x":' + opening * depth + b"1" + closing * depth + b"}")
            assert found.rows in ([0], [])


def test_the_empty_key_is_a_key() -> None:
    assert read(b'{"user":"u","column":"a","":7}', time="/").times("/") == [7]


def test_a_value_above_the_limit_is_unsure() -> None:
    assert rows(event("u"), event("uu"), max_bytes=len(event("u"))) == [0]


def test_one_value_can_neither_close_its_neighbour_nor_stand_for_two() -> None:
    good = event("good")
    for one, other in (
        (b'{"user":"x","column":"a","time":1,"extra":[', b'],"user":"y","column":"b","time":2}'),
        (event("x") + event("y"), b""),
        (event("x") + b"\n" + event("y"), b" "),
        (event("x") + b"," + event("y"), b"\n"),
        (b'{"user":"x","column":"a","time":1,"open":"', b'"}'),
    ):
        found = read(good, one, other, good)
        assert found.rows == [0, 3]
        assert found.values("/user") == ["good", "good"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(crafted()), max_size=8), st.integers(0, 8))
def test_the_fields_of_a_value_do_not_depend_on_its_neighbours(values: list[bytes | None], at: int) -> None:
    found = read(*values[:at], event("me", "b", 7), *values[at:], max_bytes=MAX_BYTES)
    place = found.rows.index(min(at, len(values)))
    assert found.values("/user")[place] == "me"
    assert found.times("/time")[place] == 7


def test_columns_are_indices_ignored_or_unsure() -> None:
    def found(*columns: Any, **changes: Any) -> list[int]:
        one = stream(**changes)
        finder = ColumnFinder(one.source, one.counts)
        return read(*(event(column=column) for column in columns), **changes).columns(finder)

    assert found("a", "c", "b") == [0, UNSURE, 1]
    assert found("a", "c", unknown="ignore") == [0, IGNORED]
    assert found("a", "c", unknown="column", unknown_column=1) == [0, 1]
    integers = {"labels": ("7", "07"), "column_type": "integer"}
    assert found(7, 8, **integers) == [0, UNSURE]
    assert found(7, 7.0, **integers, unknown="ignore") == [0]
    assert found(2**63 - 1, **integers, unknown="ignore") == [IGNORED]


def test_two_streams_may_share_fields_but_not_want_one_as_two_types() -> None:
    one, other = stream(), stream(column="/page/section")
    assert fields_of([(one.source, one.counts), (other.source, other.counts)]) == {
        "/user": "string",
        "/column": "string",
        "/time": "ms",
        "/page/section": "string",
    }
    clash = stream(user_type="integer")
    assert fields_of([(one.source, one.counts), (clash.source, clash.counts)]) is None


@pytest.mark.parametrize(
    "changes",
    [{"user": ""}, {"user": "/a", "column": "/a/b"}, {"user": "/a/b", "time": "/a"}, {"user": '/"'}],
)
def test_pointers_that_no_plain_object_can_have_are_left_to_one_by_one_decoding(changes: Any) -> None:
    assert rows(event(), **changes) == []


@settings(max_examples=300, deadline=None)
@given(
    st.text(alphabet="0123456789-:TtZz+. ", max_size=35)
    | st.datetimes().map(lambda moment: moment.isoformat() + "Z")
    | st.datetimes().map(lambda moment: moment.isoformat(timespec="milliseconds") + "+01:30")
    | st.sampled_from(["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59.9-23:59", "2000-01-01T00:00:60Z"])
)
def test_a_time_in_text_is_unsure_or_what_the_timeline_reads(text: str) -> None:
    for _ in range(2):  # the second time from memory
        found = read(event(time=text)).times("/time")
        if found and found != [UNSURE_TIME]:
            assert found == [parse_rfc3339(text)]


def test_one_long_text_among_integers_takes_no_room_of_its_neighbours() -> None:
    events = [event(time=1000 + i) for i in range(200)] + [event(time="x" * 500_000)]
    found = read(*events)
    tracemalloc.start()
    times = found.times(stream().source.time)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert times == [*range(1000, 1200), UNSURE_TIME]
    assert peak < 5_000_000


def test_common_times_in_text_are_sure() -> None:
    for text in ("2013-01-01T00:00:00Z", "2024-02-29 23:59:59.123456+05:30", "1969-12-31t23:59:59.9z"):
        assert read(event(time=text)).times("/time") == [parse_rfc3339(text)]


def test_neither_many_nor_long_parts_of_times_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_REMEMBERED", 10)
    texts = [f"2000-01-01T00:00:00.{number}Z" for number in range(99)]
    long = f"2000-01-01T00:00:00.{'1' * 100}Z"
    assert bulk.times_of([*texts, long]).tolist() == [parse_rfc3339(text) for text in (*texts, long)]
    assert len(bulk._SECONDS) <= 10
    assert max(map(len, bulk._SECONDS)) < 50

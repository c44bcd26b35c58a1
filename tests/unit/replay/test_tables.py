"""Rows of Parquet and Arrow files mean what the same events mean as lines of JSON."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from eventveil.cli.main import main
from eventveil.counting.counter import CounterState
from eventveil.model.errors import EventveilError
from eventveil.model.topology import Stream
from eventveil.replay import tables
from eventveil.replay.files import open_file
from eventveil.replay.inputs import FileInput
from eventveil.replay.run import replay
from eventveil.tasks.aggregate import PartitionAggregator
from tests.unit.replay.history import (
    COLUMNS,
    HOUR,
    ORIGIN,
    brute_force,
    counts_of,
    stream,
    topology,
    zero_noise,
)
from tests.unit.topology.test_values import TEXT

POINTERS = {"/user", "/to", "/at"}
FORMATS = ("parquet", "file", "stream")
GOOD = {"user": ["u"], "to": ["BOS"], "at": [ORIGIN]}
TEXT_TIME, NOON = "2013-01-01T00:00:00.001Z", ORIGIN + 12 * HOUR


def write(path: Path, table: pa.Table, how: str, rows: int = 10_000) -> Path:
    if how == "parquet":
        pq.write_table(table, path, row_group_size=rows)
        return path
    new = pa.ipc.new_file if how == "file" else pa.ipc.new_stream
    with new(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def write_lines(path: Path, documents: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return path


def judged(path: Path, *streams: Stream) -> tuple[list[bytes], list[tuple[tuple[str, bytes], ...]]]:
    """The partial counts of the first day and the headers of all dead letters."""
    pointers = {
        pointer for one in streams for pointer in (one.source.user, one.source.column, one.source.time)
    }
    given = open_file(str(path), pointers)
    given.begin(0, max(one.source.max_bytes for one in streams))
    states = {one.name: (given.rules(one, 24), CounterState("i", 0, 1, 1, 0, 0)) for one in streams}
    aggregator = PartitionAggregator(1, states)
    letters: list[tuple[tuple[str, bytes], ...]] = []
    for chunk in given.chunks():
        aggregator.process(chunk)
        if batch := aggregator.dead_letter_batch():
            letters += [tuple(letter.headers) for letter in batch.dead_letters]
            aggregator.durable(batch)
    partials = [counter.close().encode() for counter in aggregator.counters.values() for _ in range(24)]
    return partials, sorted(letters)


def released(path: Path, *streams: Stream) -> tuple[list[bytes], dict[str, dict[str, int]]]:
    running = replay(topology(*streams), open_file(str(path), POINTERS), end=ORIGIN + 24 * HOUR, seed=4)
    return [one.record for one in running], {name: dict(of) for name, of in running.outcomes.items()}


maybe = st.none() | st.sampled_from(["u", "v", *COLUMNS, ""]) | st.text(max_size=9)
int64 = st.integers(-(2**63), 2**63 - 1)
near = st.integers(-2 * HOUR, 30 * HOUR).map(lambda after: ORIGIN + after)
told = st.sampled_from(
    [TEXT_TIME, "2013-01-01T05:00:00+04:00", "2013-01-01T05:00:00", "", "9999-12-31T23:59:60Z"]
)
number = st.floats(allow_nan=False, allow_infinity=False)
#: By field, what its values may be; a column of a file has one of them.
VALUES = {
    "user": [
        maybe,
        st.none() | st.integers(0, 3),
        st.none() | int64,
        st.integers(0, 2**64 - 1),
        number,
        st.booleans(),
    ],
    "to": [
        st.none() | st.sampled_from([*COLUMNS, "XXX"]),
        st.sampled_from(COLUMNS),
        st.none() | st.integers(0, 3),
    ],
    "at": [
        st.none() | near,
        near,
        int64,
        st.none() | told,
        st.none() | st.sampled_from([float(ORIGIN), 0.5]),
    ],
}


@given(st.data(), st.sampled_from(FORMATS), st.sampled_from(["string", "integer"]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_same_events_as_rows_and_as_lines_give_the_same_bytes_and_rejections(
    data: st.DataObject, how: str, user_type: Any, dictionaries: bool
) -> None:
    count = data.draw(st.integers(0, 12))
    chosen = {name: data.draw(st.sampled_from(kinds)) for name, kinds in VALUES.items()}
    values = {
        name: data.draw(st.lists(kind, min_size=count, max_size=count)) for name, kind in chosen.items()
    }
    documents = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    biggest = max((one for one in values["user"] if type(one) is int), default=0)
    types = {"user": pa.uint64()} if biggest >= 2**63 else {}
    arrays = {name: pa.array(of, types.get(name)) for name, of in values.items()}
    if dictionaries:
        # Parquet has no dictionaries of nulls.
        coded = [name for name, array in arrays.items() if array.null_count < len(array)]
        arrays |= {name: arrays[name].dictionary_encode() for name in coded}
    unknown = data.draw(st.sampled_from(["dead-letter", "ignore", "column"]))
    one = stream(contributions=2, unknown=unknown, unknown_column=1 if unknown == "column" else None)
    one = replace(one, source=replace(one.source, user_type=user_type))
    with tempfile.TemporaryDirectory() as folder:
        rows = write(Path(folder) / "rows", pa.table(arrays), how, rows=5)
        lines = write_lines(Path(folder) / "lines", documents)
        assert judged(rows, one) == judged(lines, one)
        assert released(rows, one) == released(lines, one)


@pytest.mark.parametrize("how", FORMATS)
def test_many_rows_give_the_counts_of_brute_force_and_become_no_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    chance = np.random.default_rng(1)
    user = [f"user {number}" for number in chance.integers(0, 500, 40_000)]
    to = [COLUMNS[number] for number in chance.integers(0, 3, 40_000)]
    at = (ORIGIN + chance.integers(0, 5 * HOUR, 40_000)).tolist()
    path = write(tmp_path / "rows", pa.table({"user": user, "to": to, "at": at}), how, rows=25_000)
    monkeypatch.setattr(tables, "_as_json", lambda _: pytest.fail("a row became JSON"))
    given = open_file(str(path), POINTERS)
    running = replay(topology(), given, end=ORIGIN + 5 * HOUR, noise=zero_noise)
    events = [
        json.dumps(dict(zip(GOOD, row, strict=True))).encode() for row in zip(user, to, at, strict=True)
    ]
    expected = {
        ("destinations", timestamp): dict(counts) for timestamp, counts in brute_force(events).items()
    }
    assert counts_of(running) == expected
    assert given.done <= (given.total or 0)
    assert how != "parquet" or given.done == given.total


def test_a_bad_row_among_many_costs_one_event(tmp_path: Path) -> None:
    user = [None if number % 1000 == 7 else f"user {number}" for number in range(40_000)]
    table = pa.table({"user": user, "to": ["BOS"] * 40_000, "at": [ORIGIN] * 40_000})
    outcomes = released(write(tmp_path / "rows", table, "parquet"), stream())[1]
    assert outcomes == {"destinations": {"counted": 39_960, "wrong-type": 40}}


NANOSECONDS, UTC_SECONDS = pa.timestamp("ns", "UTC"), pa.timestamp("s", "Europe/Berlin")
STRUCT = pa.struct([("id", pa.string())])


@pytest.mark.parametrize(
    ("field", "array", "as_json"),
    [
        ("user", pa.array([7], pa.int8()), "7"),
        ("user", pa.array([2**64 - 1], pa.uint64()), str(2**64 - 1)),
        ("user", pa.array([Decimal(7)], pa.decimal128(9, 0)), "7"),
        ("user", pa.array([Decimal(10**19)], pa.decimal128(38, 0)), str(10**19)),
        ("user", pa.array([Decimal(10**30)], pa.decimal128(38, 0)), str(10**30)),
        ("user", pa.array([Decimal("7.00")], pa.decimal128(9, 2)), "7.00"),
        ("user", pa.array([1.5], pa.float32()), "1.5"),
        ("user", pa.array([float("nan")]), "null"),
        ("user", pa.array([np.float16(2)], pa.float16()), "2.0"),
        ("user", pa.array([True]), "true"),
        ("user", pa.nulls(1), "null"),
        ("user", pa.array(["u"], pa.large_string()), '"u"'),
        ("user", pa.array([["u"]]), '["u"]'),
        ("user", pa.array([{"id": "u"}], STRUCT), '{"id": "u"}'),
        ("to", pa.array(["BOS"]).dictionary_encode(), '"BOS"'),
        ("to", pa.array([None], pa.dictionary(pa.int8(), pa.string())), "null"),
        ("to", pa.array([1]), "1"),
        ("at", pa.array([ORIGIN], pa.uint64()), str(ORIGIN)),
        ("at", pa.array([NOON * 10**6 + 999_999], pa.int64()).cast(NANOSECONDS), str(NOON)),
        ("at", pa.array([-1], pa.int64()).cast(NANOSECONDS), "-1"),
        ("at", pa.array([NOON // 1000], pa.int64()).cast(UTC_SECONDS), str(NOON)),
        ("at", pa.array([2**62], pa.int64()).cast(UTC_SECONDS), str(2**62 * 1000)),
        ("at", pa.array([(ORIGIN + 125 * 2**64) // 1000]).cast(UTC_SECONDS), str(ORIGIN + 125 * 2**64)),
        ("at", pa.array([-(2**63)], pa.int64()).cast(UTC_SECONDS), str(-(2**63) * 1000)),
        ("at", pa.array([2**53], pa.int64()).cast(pa.timestamp("ms", "UTC")), str(2**53)),
        ("at", pa.array([-(2**53) // 1000], pa.int64()).cast(UTC_SECONDS), str(-(2**53) // 1000 * 1000)),
        ("at", pa.array([TEXT_TIME]), json.dumps(TEXT_TIME)),
        ("at", pa.array([ORIGIN // 1000], pa.int64()).cast(pa.timestamp("s")), '"2013-01-01 00:00:00"'),
        ("at", pa.array([15706], pa.int32()).cast(pa.date32()), '"2013-01-01"'),
        ("at", pa.array([1], pa.int32()).cast(pa.time32("s")), '"00:00:01"'),
    ],
)
@pytest.mark.parametrize("user_type", ["string", "integer"])
def test_every_type_means_what_its_json_means(
    tmp_path: Path, field: str, array: pa.Array, as_json: str, user_type: Any
) -> None:
    written = {name: json.dumps(of[0]) for name, of in GOOD.items()} | {field: as_json}
    (tmp_path / "lines").write_text("{" + ", ".join(f'"{name}": {of}' for name, of in written.items()) + "}")
    one = stream()
    one = replace(one, source=replace(one.source, user_type=user_type))
    # Parquet has no seconds: they would be of another type.
    for how in FORMATS[getattr(array.type, "unit", None) == "s" :]:
        rows = write(tmp_path / "rows", pa.table({**GOOD, field: array}), how)
        assert judged(rows, one) == judged(tmp_path / "lines", one)


WHO = [{"id": "u", "tags": ["t"]}, {"id": None, "tags": []}, None, {"id": "v", "tags": None}]


@pytest.mark.parametrize("how", FORMATS)
@pytest.mark.parametrize(
    "user", ["/who/id", "/who/tags/0", "/who", "/nobody", "/who/nobody", "/who/id/x", "", "/a~1b"]
)
def test_pointers_go_into_structs_and_lists_as_into_objects_and_arrays(
    tmp_path: Path, how: str, user: str
) -> None:
    documents = [{"who": who, "to": "BOS", "at": ORIGIN, "a/b": "x", "a": {"b": 1}} for who in WHO]
    rows = write(tmp_path / "rows", pa.Table.from_pylist(documents), how)
    one = stream()
    one = replace(one, source=replace(one.source, user=user))
    if user:
        documents = [{name: of for name, of in one.items() if name != "a"} for one in documents]
    partials, letters = judged(rows, one)
    assert (partials, letters) == judged(write_lines(tmp_path / "lines", documents), one)
    assert len(letters) == {"/who/id": 2, "/who/tags/0": 3, "/a~1b": 0}.get(user, 4)


def test_streams_that_want_a_column_differently_agree_with_their_lines(tmp_path: Path) -> None:
    other = stream("other")
    other = replace(other, source=replace(other.source, user_type="integer"))
    values = {"user": [1, 2, 1, None], "to": ["BOS"] * 4, "at": [ORIGIN] * 4}
    rows = write(tmp_path / "rows", pa.table(values), "parquet")
    lines = write_lines(
        tmp_path / "lines",
        [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)],
    )
    assert judged(rows, stream(), other) == judged(lines, stream(), other)


@pytest.mark.parametrize("length", [20, 180, 400])
def test_an_event_is_too_large_by_the_json_of_its_columns(tmp_path: Path, length: int) -> None:
    one = stream()
    one = replace(one, source=replace(one.source, max_bytes=250))
    event = {"user": "ä" * (length // 2), "to": "BOS", "at": ORIGIN}
    path = write(
        tmp_path / "rows", pa.table({**{name: [of] for name, of in event.items()}, "x": ["x" * 999]}), "file"
    )
    (tmp_path / "lines").write_text(json.dumps(event, ensure_ascii=False, separators=(",", ":")))
    assert judged(path, one)[0] == judged(tmp_path / "lines", one)[0]
    expected = {"too-large": 1} if length == 400 else {"counted": 1}
    assert released(path, one)[1] == released(tmp_path / "lines", one)[1] == {"destinations": expected}


@pytest.mark.parametrize("how", FORMATS)
def test_a_file_without_any_of_the_columns_has_events_without_fields(tmp_path: Path, how: str) -> None:
    path = write(tmp_path / "rows", pa.table({"blob": [b"x"] * 3}), how)
    assert released(path, stream())[1] == {"destinations": {"missing-field": 3}}
    assert released(write(path, pa.table({**GOOD, "at": pa.array([0])}).slice(0, 0), how), stream())[1] == {
        "destinations": {}
    }


@pytest.mark.parametrize("how", FORMATS)
def test_columns_in_place_of_structs_are_named(tmp_path: Path, how: str) -> None:
    path = write(tmp_path / "rows", pa.table({"who.a/b.id": ["u"], "to": ["BOS"], "at": [ORIGIN]}), how)
    pointers = {"/who/a~1b/id", "/who/name", "/to/name", "/at"}
    assert open_file(str(path), pointers).warnings == [
        "nothing is at /who/a~1b/id; did you mean the column who.a/b.id? Its pointer is /who.a~1b.id"
    ]
    one = stream()
    one = replace(one, source=replace(one.source, user="/who.a~1b.id"))
    assert judged(path, one)[1] == [], "the user was not found there"


@pytest.mark.parametrize("how", FORMATS)
def test_a_time_without_a_zone_is_one_in_the_time_zone_of_the_source(tmp_path: Path, how: str) -> None:
    at = pa.array([ORIGIN], pa.timestamp("ms"))
    path = write(tmp_path / "rows", pa.table({**GOOD, "at": at}), how)
    one = stream()
    zoned = replace(one, source=replace(one.source, time_zone="UTC"))
    assert released(path, one)[1] == {"destinations": {"time-unreadable": 1}}
    assert released(path, zoned)[1] == {"destinations": {"counted": 1}}


@pytest.mark.parametrize("how", FORMATS)
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"user": pa.array([b"u"])}, "column user is of type binary, which JSON does not have; cast it"),
        ({"at": pa.array([1], pa.duration("s"))}, "column at is of type duration"),
        ({"user": pa.array([{"id": [b"u"]}])}, "column user.id is of type binary"),
    ],
)
def test_a_column_that_json_cannot_hold_is_refused(
    tmp_path: Path, how: str, changes: dict[str, pa.Array], told: str
) -> None:
    path = write(tmp_path / "rows", pa.table({**GOOD, **changes}), how)
    with pytest.raises(EventveilError, match=f"rows: {told}"):
        open_file(str(path), POINTERS)


@pytest.mark.parametrize("how", FORMATS)
def test_columns_of_one_name_are_refused_where_they_are_read(tmp_path: Path, how: str) -> None:
    table = pa.table([["u"], ["v"], ["BOS"], [ORIGIN]], names=["user", "user", "to", "at"])
    path = write(tmp_path / "rows", table, how)
    with pytest.raises(EventveilError, match="column user occurs 2 times; column names must be unique"):
        open_file(str(path), POINTERS)
    assert open_file(str(path), {"/to"})


@pytest.mark.parametrize("how", FORMATS)
def test_a_damaged_file_is_refused(tmp_path: Path, how: str) -> None:
    table = pa.table(
        {"user": [f"u{number}" for number in range(9999)], "to": ["BOS"] * 9999, "at": [ORIGIN] * 9999}
    )
    path = write(tmp_path / "rows", table, how)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(
        EventveilError, match=r"rows cannot be read \(.*\); write it again, or as lines of JSON"
    ):
        released(path, stream())


def test_text_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    user = pa.array([b"\xff"]).view(pa.string())
    path = write(tmp_path / "rows", pa.table({**GOOD, "user": user}), "file")
    with pytest.raises(EventveilError, match=r"rows cannot be read \(.*UTF8"):
        released(path, stream())


def test_without_pyarrow_a_table_is_refused_with_the_remedy_and_lines_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "rows", pa.table(GOOD), "parquet")
    monkeypatch.setitem(sys.modules, "eventveil.replay.tables", None)
    with pytest.raises(EventveilError, match=r"pip install '\.\[arrow\]'"):
        open_file(str(path), POINTERS)
    assert type(open_file(str(write_lines(tmp_path / "lines", [])), POINTERS)) is FileInput


def test_the_command_replays_a_table_of_events_and_of_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.yaml").write_text(TEXT.replace("epsilon: 1.0", "epsilon: 1.0\n      held: 20\n      chunk: 64"))
    minutes = [None if number % 7 == 3 else number % 90 / 2 for number in range(300)]
    write(Path("rows"), pa.table({"minutes": minutes}), "parquet")
    write_lines(Path("lines"), [{"minutes": one} for one in minutes])
    shown = []
    for source in ("rows", "lines"):
        arguments = ["--input", source, "--output", f"{source}.out", "--seed", "1", "--show-drops"]
        result = CliRunner().invoke(main, ["replay", "t.yaml", "--stream", "minutes", *arguments])
        assert result.exit_code == 0, result.output
        shown.append(next(line for line in result.stderr.splitlines() if "minutes had" in line))
    assert Path("rows.out").read_bytes() == Path("lines.out").read_bytes()
    assert shown[0] == shown[1]
    write(Path("rows"), pa.table({"minutes": pa.array([b"1"])}), "parquet")
    result = CliRunner().invoke(
        main, ["replay", "t.yaml", "--input", "rows", "--output", "o", "--to", "last"]
    )
    assert (result.exit_code, result.stdout) == (1, "")
    assert "eventveil replay: rows: column minutes is of type binary" in result.stderr

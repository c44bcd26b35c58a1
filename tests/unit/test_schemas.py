"""What is written fits the schemas that say what is written, and nothing else does."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import numpy as np
import orjson
import pytest
from jsonschema import Draft202012Validator

from eventveil.decoding.rules import Reason
from eventveil.formats.change import Change, Difference, Kind, Terms
from eventveil.formats.release import control_record, ledger_entry, release_record
from eventveil.formats.witness import Sighting, Witness
from eventveil.mechanisms.base import RELEASE_LIMIT, Release
from eventveil.mechanisms.registry import KINDS, build
from eventveil.model.topology import Stream
from eventveil.privacy.noise import SystemNoise
from eventveil.topology.spec import NAME
from eventveil.values.kinds import VALUE_KINDS
from tests.unit.local.streams import counts_of, local_stream, send
from tests.unit.support import USER_OF_PARTITION, aggregator, chunk, counter_state, event, stream
from tests.unit.values.streams import perturber, readings

SCHEMAS = Path(__file__).parents[2] / "schemas"
INSTANCE = uuid.UUID(int=7).hex
FORMS = ("object", "array")
HERE, THERE = USER_OF_PARTITION


def schema(name: str) -> dict[str, Any]:
    return dict(json.loads((SCHEMAS / f"{name}.schema.json").read_text()))


RELEASE = Draft202012Validator(schema("release"))
ENTRY = Draft202012Validator(schema("ledger-entry"))
READING = Draft202012Validator(schema("reading"))
SPAN = Draft202012Validator(schema("ledger-span"))
CONTROL = Draft202012Validator(schema("control"))
CHANGE = Draft202012Validator(schema("ledger-change"))
WITNESS = Draft202012Validator(schema("witness"))
HEADERS = Draft202012Validator(schema("dead-letter-headers"))


def records(one: Stream, timestamps: int = 8, *, seeded: bool = False) -> Iterator[bytes]:
    """Real releases, with real noise."""
    mechanism = build(one.mechanism, len(one.counts.labels), one.sensitivity, SystemNoise())
    for timestamp in range(1, timestamps + 1):
        release = mechanism.step(np.array([1000 * timestamp, 5][: len(one.counts.labels)], np.int64))
        yield release_record(one, timestamp, release, mechanism.units, seeded=seeded)


def settings_of(kind: str) -> dict[str, Any]:
    """Settings with a sliding window and a horizon that passes, for kinds that have them."""
    level = KINDS[kind].level
    if level == "w-event":
        return {"kind": kind}
    columns = {"labels": ("a",)} if level == "user" else {}
    options = {"blocks": "2,4"} if kind == "totals" else {"span": 3}
    return {"kind": kind, "window": 1 if level == "event" else 6, "options": options, **columns}


def one_record(form: str = "object", **changes: Any) -> dict[str, Any]:
    return dict(orjson.loads(next(records(stream(form=form, **changes)))))


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.name)
def test_every_schema_is_a_valid_schema(path: Path) -> None:
    Draft202012Validator.check_schema(json.loads(path.read_text()))


def test_a_witness_fits_its_schema_and_no_field_of_it_may_be_left_out() -> None:
    entry = ledger_entry(next(records(stream())), INSTANCE)
    values = orjson.dumps({"stream": "minutes", "partition": 3, "position": 7, "reading": None})
    sightings = Sighting.read(("ledger", 0), 4, entry), Sighting.read(("sink", 3), 9, values)
    found = [one for one in sightings if one is not None]
    witness = Witness("shop", "MkU3OEVBNTcwNTJENDM2Qg", 7, {one.line: one for one in found})
    fields = orjson.loads(witness.encode())
    assert len(fields["seen"]) == 2
    WITNESS.validate(fields)
    for name in fields:
        assert not WITNESS.is_valid({one: fields[one] for one in fields if one != name})
    for name in fields["seen"][0]:
        less = {one: value for one, value in fields["seen"][0].items() if one != name}
        assert not WITNESS.is_valid({**fields, "seen": [less]})


@pytest.mark.parametrize("kind", sorted(VALUE_KINDS))
@pytest.mark.parametrize("seeded", [False, True])
def test_readings_and_spans_fit_their_schemas(kind: str, seeded: bool) -> None:
    one = perturber(readings(kind), seeded=seeded)
    one.step(range(40), [b'{"value": 7}'] * 40, 40)
    written = [(READING, orjson.loads(record)) for record in one.records()]
    written += [(SPAN, orjson.loads(entry)) for entry in one.entries()]
    assert len(written) == 43
    for validator, fields in written:
        assert list(validator.iter_errors(fields)) == []
        assert not validator.is_valid({**fields, "more": 1})
        for name in fields.keys() - {"seeded"}:
            assert not validator.is_valid({key: fields[key] for key in fields if key != name}), name


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_releases_and_ledger_entries_of_every_kind_fit(kind: str, form: str) -> None:
    fresh = set()
    for record in records(stream(form=form, **settings_of(kind))):
        RELEASE.validate(orjson.loads(record))
        ENTRY.validate(orjson.loads(ledger_entry(record, INSTANCE)))
        fresh.add(orjson.loads(record)["fresh"])
    always = ("uniform", "time-unit", "retroactive-grouping", "totals")
    assert fresh == {True} if kind in always else fresh >= {True}
    assert ("exhausted" in orjson.loads(record)) == (KINDS[kind].level == "user")
    assert ("history" in orjson.loads(record)) == (KINDS[kind].level == "user")


def test_what_streams_of_local_reports_write_fits_in_both_phases() -> None:
    one, threshold = local_stream(after=3), None
    mechanism, phases = build(one.mechanism, len(one.counts.labels), 1, SystemNoise()), []
    for timestamp in range(1, 4):
        release = mechanism.step(counts_of(send([1, 2, 3], threshold)[: 4 - timestamp]))
        record = orjson.loads(release_record(one, timestamp, release, mechanism.units))
        entry = orjson.loads(ledger_entry(orjson.dumps(record), INSTANCE))
        threshold = release.threshold
        for validator, fields in ((RELEASE, record), (ENTRY, entry)):
            validator.validate(fields)
            assert fields.get("threshold") == threshold
            without = {name: value for name, value in fields.items() if name != "phase"}
            assert not validator.is_valid(without)
            assert not validator.is_valid({**fields, "threshold": 0})
        phases.append(record["phase"])
    assert phases == ["distribution", "sums", "sums"]
    for asks in (None, threshold):
        fields = orjson.loads(control_record(one, asks))
        CONTROL.validate(fields)
        assert not CONTROL.is_valid({**fields, "more": 1})
        for name in fields:
            assert not CONTROL.is_valid({key: value for key, value in fields.items() if key != name}), name
    assert not CONTROL.is_valid({**fields, "phase": "distribution"})


@pytest.mark.parametrize("text", ["1", "0.05", "1.", ".5", "1e-3", "2E+1", "1/3"])
def test_every_way_to_write_epsilon_fits(text: str) -> None:
    record = next(records(stream(epsilon_text=text)))
    RELEASE.validate(orjson.loads(record))
    ENTRY.validate(orjson.loads(ledger_entry(record, INSTANCE)))


def test_instants_with_and_without_milliseconds_fit() -> None:
    for interval in (10, 1000):
        RELEASE.validate(one_record(interval=interval))


def test_the_largest_counts_that_a_release_holds_fit_and_larger_ones_do_not() -> None:
    release = Release(np.array([RELEASE_LIMIT, -RELEASE_LIMIT]), True, 0, 1, 1)
    fields = orjson.loads(release_record(stream(), 1, release, 8))
    RELEASE.validate(fields)
    for beyond in (RELEASE_LIMIT + 1, -RELEASE_LIMIT - 1):
        assert not RELEASE.is_valid({**fields, "counts": {"a": beyond}})


def test_a_seeded_release_fits() -> None:
    RELEASE.validate(orjson.loads(next(records(stream(), seeded=True))))


WRONG_RELEASES: list[tuple[str, str, Callable[[dict[str, Any]], object]]] = [
    ("a member more", "object", lambda one: one.update(total=3)),
    ("timestamp 0", "object", lambda one: one.update(timestamp=0)),
    ("timestamp as text", "object", lambda one: one.update(timestamp="1")),
    ("a stream name with a slash", "object", lambda one: one.update(stream="a/b")),
    ("start with an offset", "object", lambda one: one.update(start="2013-01-01T00:00:00+01:00")),
    ("a count with a fraction", "object", lambda one: one.update(counts={"a": 1.5})),
    ("a count as text", "array", lambda one: one.update(counts=["1"])),
    ("no columns", "object", lambda one: one.update(counts={})),
    ("no columns in an array", "array", lambda one: one.update(counts=[])),
    ("an object with a digest", "object", lambda one: one.update(columns_digest="0" * 64)),
    ("an array without a digest", "array", lambda one: one.pop("columns_digest")),
    ("a digest too short", "array", lambda one: one.update(columns_digest="0" * 63)),
    ("fresh as a number", "object", lambda one: one.update(fresh=1)),
    ("epsilon as a number", "object", lambda one: one.update(epsilon=1.0)),
    ("epsilon negative", "object", lambda one: one.update(epsilon="-1")),
    ("window 0", "object", lambda one: one.update(window=0)),
    ("units 0", "object", lambda one: one.update(units=0)),
    ("a spend below 0", "object", lambda one: one["spent"].update(test=-1)),
    ("a spend of a third kind", "object", lambda one: one["spent"].update(other=1)),
    ("a spend missing", "object", lambda one: one["spent"].pop("publish")),
    ("window_spent below 0", "object", lambda one: one.update(window_spent=-1)),
    ("seeded false", "object", lambda one: one.update(seeded=False)),
]


@pytest.mark.parametrize(("name", "form", "spoil"), WRONG_RELEASES, ids=[row[0] for row in WRONG_RELEASES])
def test_a_wrong_release_does_not_fit(
    name: str, form: str, spoil: Callable[[dict[str, Any]], object]
) -> None:
    fields = one_record(form)
    assert RELEASE.is_valid(fields)
    spoil(fields)
    assert not RELEASE.is_valid(fields)


WRONG_ENTRIES: list[tuple[str, dict[str, Any]]] = [
    ("with counts", {"counts": {"a": 1}}),
    ("with the start", {"start": "2013-01-01T00:00:00Z"}),
    ("digest not hexadecimal", {"digest": "g" * 64}),
    ("instance too short", {"instance": "0" * 31}),
    ("timestamp 0", {"timestamp": 0}),
    ("spend below 0", {"spent": {"test": 0, "publish": -1}}),
    ("epsilon as a number", {"epsilon": 1}),
]


@pytest.mark.parametrize(("name", "changes"), WRONG_ENTRIES, ids=[row[0] for row in WRONG_ENTRIES])
def test_a_wrong_entry_does_not_fit(name: str, changes: dict[str, Any]) -> None:
    entry = orjson.loads(ledger_entry(next(records(stream())), INSTANCE))
    assert ENTRY.is_valid(entry)
    assert not ENTRY.is_valid({**entry, **changes})


@pytest.mark.parametrize("form", FORMS)
def test_no_member_of_a_release_may_be_missing(form: str) -> None:
    fields = one_record(form)
    assert {"error", "noise_scale"} < set(fields)
    for name in fields.keys() - {"error", "noise_scale"}:
        assert not RELEASE.is_valid({key: value for key, value in fields.items() if key != name}), name


def test_no_member_of_an_entry_may_be_missing() -> None:
    entry = orjson.loads(ledger_entry(next(records(stream())), INSTANCE))
    for name in entry:
        assert not ENTRY.is_valid({key: value for key, value in entry.items() if key != name}), name


def test_names_of_streams_are_those_that_a_topology_takes() -> None:
    for name in ("release", "ledger-entry", "control"):
        assert schema(name)["properties"]["stream"]["pattern"] == f"^{NAME}$"
    assert schema("dead-letter-headers")["properties"]["eventveil.stream"]["pattern"] == f"^{NAME}$"


def test_what_releases_and_entries_share_is_described_alike() -> None:
    release, entry = schema("release"), schema("ledger-entry")
    shared = (set(release["properties"]) & set(entry["properties"])) - {"timestamp"}
    assert len(shared) == 15
    for name in shared:
        assert release["properties"][name] == entry["properties"][name]


# Dead letters: (append time, value) of a record that each reason rejects, in partition 0 of two

REJECTED: dict[Reason, tuple[int, bytes | None]] = {
    Reason.TOMBSTONE: (1000, None),
    Reason.TOO_LARGE: (1000, event(HERE, column="a" * 100)),
    Reason.NO_APPEND_TIME: (-1, event(HERE)),
    Reason.NOT_JSON: (1000, b"{"),
    Reason.UNKNOWN_SCHEMA: (1000, b"\0\0\0\0\7x"),
    Reason.NOT_OF_SCHEMA: (1000, b"{}"),
    Reason.MISSING_FIELD: (1000, b"{}"),
    Reason.WRONG_TYPE: (1000, event(7)),
    Reason.EMPTY_USER: (1000, event("")),
    Reason.WRONG_PARTITION: (1000, event(THERE)),
    Reason.UNKNOWN_COLUMN: (1000, event(HERE, column="z")),
    Reason.TIME_UNREADABLE: (1000, event(HERE, time="never")),
    Reason.BEFORE_ORIGIN: (1000, event(HERE, time=999)),
    Reason.BEFORE_START: (1000, event(HERE, time=1000)),
    Reason.TOO_FAR_AHEAD: (1000, event(HERE, time=2000)),
    Reason.LATE: (5000, event(HERE, time=1020)),
    Reason.AFTER_CLOSE: (1012, event(HERE, time=1010)),
}
OF_ENGINES = {
    Reason.MISALIGNED: (1010, event(HERE, HERE, time=1011)),
    Reason.BAD_COUNT: (1010, orjson.dumps({"column": HERE, "time": 1010, "n": -1})),
}


@pytest.mark.parametrize("reason", Reason)
def test_the_headers_of_a_dead_letter_fit(reason: Reason) -> None:
    form = "avro" if reason in (Reason.UNKNOWN_SCHEMA, Reason.NOT_OF_SCHEMA) else "json"
    one = stream(max_bytes=100, format=form)
    record, following = REJECTED.get(reason), 3
    if record is None:
        one = stream(max_bytes=100, count="/n", user="/column", user_type="either", labels=(HERE,))
        record, following = OF_ENGINES[reason], 2
    partition = aggregator(one, partitions=2, states={one.name: counter_state(first=2, next=following)})
    partition.process(replace(chunk([record]), schemas={7: None}))
    batch = partition.dead_letter_batch()
    assert batch is not None
    (letter,) = batch.dead_letters
    headers = {name: text.decode() for name, text in letter.headers}
    assert headers["eventveil.reason"] == reason.value
    HEADERS.validate(headers)
    for name in headers:
        assert not HEADERS.is_valid({key: text for key, text in headers.items() if key != name})
    assert not HEADERS.is_valid({**headers, "eventveil.reason": "disliked"})
    assert not HEADERS.is_valid({**headers, "eventveil.offset": "-2"})
    assert not HEADERS.is_valid({**headers, "eventveil.more": ""})


def test_the_reasons_of_dead_letters_are_those_of_the_decoder() -> None:
    assert schema("dead-letter-headers")["properties"]["eventveil.reason"]["enum"] == list(Reason)


def test_changes_in_the_ledger_fit_their_schema_and_are_read_back() -> None:
    before = Terms("uniform", Fraction(1, 3), 3, 6)
    after = Terms("sample", Fraction(2), 5, 10)
    fields = {"mechanism.window": Difference(3, 5), "mechanism.factor": Difference("1", None)}
    for kind in get_args(Kind):
        change = Change("visits", kind, 7, fields, before, after, "1" * 32, "0" * 32)
        encoded = orjson.loads(change.encode())
        CHANGE.validate(encoded)
        assert Change.read(encoded) == change
        for name in encoded:
            short = {key: value for key, value in encoded.items() if key != name}
            assert not CHANGE.is_valid(short)
            assert Change.read(short) is None
        assert not CHANGE.is_valid({**encoded, "more": 1})
        assert Change.read({**encoded, "more": 1}) is None


@pytest.mark.parametrize(
    "damage",
    [
        {"change": "whim"},
        {"from": 0},
        {"from": "7"},
        {"instance": 1},
        {"before": {"mechanism": "uniform", "epsilon": "1", "window": 3}},
        {"before": {"mechanism": "uniform", "epsilon": "0", "window": 3, "units": 6}},
        {"before": {"mechanism": "uniform", "epsilon": "1/0", "window": 3, "units": 6}},
        {"before": {"mechanism": "uniform", "epsilon": 1.0, "window": 3, "units": 6}},
        {"after": {"mechanism": "uniform", "epsilon": "1", "window": 0, "units": 6}},
        {"fields": {"a": {"old": 1}}},
        {"fields": [1]},
    ],
    ids=str,
)
def test_what_is_no_change_is_not_read_as_one(damage: dict[str, Any]) -> None:
    terms = Terms("uniform", Fraction(1), 3, 6)
    good = Change("visits", "migration", 7, {}, terms, terms, "1" * 32, "0" * 32)
    assert Change.read({**orjson.loads(good.encode()), **damage}) is None

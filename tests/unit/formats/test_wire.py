"""What a sink gets in each format, byte for byte, and that it is the same release by all readers."""

from __future__ import annotations

import hashlib
import io
import json
from fractions import Fraction
from typing import Any, get_args

import fastavro
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventveil.audit.records import FoundRecord
from eventveil.decoding.avro import AvroSchema
from eventveil.formats import avro, release
from eventveil.formats.release import fields_of, ledger_entry, release_timestamp
from eventveil.mechanisms.base import RELEASE_LIMIT
from eventveil.mechanisms.registry import KINDS
from eventveil.mechanisms.sizes import largest_release
from eventveil.model.records import TopicPartition
from eventveil.model.topology import SinkFormat
from eventveil.read.records import Record, decode
from eventveil.tasks.release import ReleaseState
from tests.unit.support import INSTANCE, stream
from tests.unit.test_schemas import records, schema, settings_of
from tests.unit.topology.examples import ROOT

FORMS = [form for form in get_args(SinkFormat) if form != "json"]
RECORD = orjson.dumps(
    {
        "stream": "visits", "timestamp": 7,
        "start": "2026-01-01T00:06:00Z", "end": "2026-01-01T00:07:00.500Z",
        "counts": {"home": -3, "Schühe": 1099511627776}, "error": {"home": 1.41, "Schühe": 1.41},
        "noise_scale": 2.0, "fresh": True, "mechanism": "uniform", "epsilon": "1.0", "window": 3, "units": 3,
        "spent": {"test": 0, "publish": 1}, "window_spent": 3, "missing": [2],
    }
)  # fmt: skip
#: Never to change: a release that was decided is published as it was decided, also by a later version.
AVRO = (
    "00000000110c7669736974730e809981eeee66a8ca88eeee660408686f6d6505028fc2f5285c8ff63f0e536368c3bc6865808080"
    "808040028fc2f5285c8ff63f0002000000000000004000000000000000010e756e69666f726d06312e30"
    "0606000206020400000000000000"
)
GOLDEN = {"avro": bytes.fromhex(AVRO), "json-schema": b"\0\0\0\0\x11" + RECORD}
#: The SHA-256 of the schema behind each name that a state may have. Never to change, nor to lose a line.
SCHEMAS = {
    "json-schema": "cb78a534bbb30f3b957daee2046743b0c2f0b3a70000b12c4eceece6575f60ed",
    "avro-1": "b46c86e8f0d7c0e122c301c3a2c28f158fa2bcfdb51751c2f9474a6dcfa415a7",
}
KEPT = {"avro": "avro-1 17 ", "json-schema": "json-schema 17 "}


def published(record: bytes, form: Any, number: int = 17) -> bytes:
    return release.decided(release.label(record, form, number)).published


@pytest.mark.parametrize("form", FORMS)
def test_what_is_published_is_a_function_of_what_was_decided_byte_for_byte(form: SinkFormat) -> None:
    kept = release.label(RECORD, form, 17)
    assert kept == KEPT[form] + RECORD.decode()
    assert release.decided(kept) == release.Decided(RECORD, GOLDEN[form])
    state = ReleaseState(INSTANCE, 1, 2, 0, "{}", (kept,))
    assert ReleaseState.decode(state.encode(), "here").pending == (kept,)


def test_plain_json_is_published_as_it_is_decided() -> None:
    assert release.label(RECORD, "json", None) == RECORD.decode()
    assert release.decided(RECORD.decode()) == release.Decided(RECORD, RECORD)


@pytest.mark.parametrize("form", FORMS)
def test_without_the_id_of_a_schema_nothing_can_be_decided(form: SinkFormat) -> None:
    with pytest.raises(ValueError, match="the id of the schema of"):
        release.label(RECORD, form, None)


def test_what_a_later_version_has_decided_is_not_published_otherwise() -> None:
    told = "a later version has decided a release, as avro-2; run that version until it is published"
    with pytest.raises(ValueError, match=told):
        release.decided(f"avro-2 17 {RECORD.decode()}")
    state = ReleaseState(INSTANCE, 1, 2, 0, "{}", (f"avro-2 17 {RECORD.decode()}",))
    assert told in str(state.contradiction())


def test_the_schema_behind_a_name_is_never_edited() -> None:
    """Else an upgrade publishes what was decided as other bytes, or asks a registry for what it lacks."""
    rule = "a new field needs a new code (avro-2) with a file of its own; old codes are kept"
    files = release._FILES
    assert files.keys() == SCHEMAS.keys(), rule
    assert len(set(files.values())) == len(files), rule
    for code, name in files.items():
        found = hashlib.sha256((ROOT / "schemas" / name).read_bytes()).hexdigest()
        assert found == SCHEMAS[code], f"the schema of {code} was edited: {rule}"


def test_gaussian_releases_come_back_as_they_were_in_avro_too() -> None:
    options = {"noise": "gaussian", "delta": Fraction(1, 10**9)}
    one = stream(kind="uniform", options=options)
    for record in records(one):
        value = published(record, "avro")
        back = decode(release.as_json(value), "here")
        assert (back.noise, back.delta) == ("gaussian", "1/1000000000")
        assert by_column(back) == by_column(decode(record, "there"))
        assert len(value) < largest_release(one)


@pytest.mark.parametrize("form", FORMS)
def test_the_ledger_has_the_digest_of_the_bytes_that_are_published_and_the_audit_finds_it(
    form: SinkFormat,
) -> None:
    value = GOLDEN[form]
    entry = orjson.loads(ledger_entry(RECORD, INSTANCE, value))
    assert entry["digest"] == hashlib.sha256(value).hexdigest()
    found = FoundRecord.read(TopicPartition("sink", 0), 3, b"visits", value, content=release.as_json(value))
    plain = FoundRecord.read(TopicPartition("sink", 0), 3, b"visits", RECORD)
    assert found.digest.hex() == entry["digest"] != plain.digest.hex()
    of = [(one.stream, one.timestamp, one.counts, one.shown, one.statement) for one in (found, plain)]
    assert of[0] == of[1]


@pytest.mark.parametrize("form", FORMS)
def test_stream_and_timestamp_of_a_value_are_known_without_a_registry(form: SinkFormat) -> None:
    assert release_timestamp(GOLDEN[form], "visits") == 7
    assert release_timestamp(GOLDEN[form], "visit") == 0
    assert (fields_of(GOLDEN[form], "visits") or {})["timestamp"] == 7


@pytest.mark.parametrize(
    "value",
    [b"\0\0\0\0\x11", b"\0\0\0\0\x11\x0cvisit", b"\0\0\0\0\x11\x0cvisits\x80", b"\0\0\0\0\x11\xff", b"\0"],
)
def test_a_value_that_is_cut_off_is_of_no_stream(value: bytes) -> None:
    assert fields_of(value, "visits") is None


def test_avro_is_read_by_others_and_has_every_field_of_a_release() -> None:
    text = release.schema_text("avro")
    parsed = fastavro.parse_schema(json.loads(text))
    row: Any = fastavro.schemaless_reader(io.BytesIO(GOLDEN["avro"][5:]), parsed, None)
    assert row["start"].isoformat() == "2026-01-01T00:06:00+00:00"
    assert row["counts"][1] == {"column": "Schühe", "count": 1099511627776, "error": 1.41}
    assert (row["spent"], row["missing"], row["seeded"]) == ({"test": 0, "publish": 1}, [2], False)
    fields = [field["name"] for field in json.loads(text)["fields"]]
    assert fields[:2] == ["stream", "timestamp"]
    # So nothing that is decided lacks a place, whatever a topology says; every reader knows all fields. Where
    # columns are found, `check` refuses Avro.
    of_releases = schema("release")["properties"].keys() - {"error", "columns_digest"}
    assert of_releases - {"discovery"} == set(fields)
    assert of_releases | {"error", "columns_digest"} == {*Record.__struct_fields__}


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("form", FORMS)
def test_a_release_of_every_kind_comes_back_as_it_was_and_is_no_longer_than_is_provided_for(
    kind: str, form: SinkFormat
) -> None:
    one = stream(**settings_of(kind))
    for record in records(one):
        value = published(record, form)
        assert release.is_avro(value) == (form == "avro")
        back = decode(release.as_json(value), "here")
        assert by_column(back) == by_column(decode(record, "there"))
        assert len(value) < largest_release(one)


def by_column(record: Record) -> Record:
    """With one error for each column, as rows have it."""
    error, counts = record.error, record.counts
    if not isinstance(error, float) or not isinstance(counts, dict):
        return record
    return Record(**{name: getattr(record, name) for name in record.__struct_fields__}
                  | {"error": dict.fromkeys(counts, error)})  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=12), st.integers(-RELEASE_LIMIT, RELEASE_LIMIT), min_size=1, max_size=20
    ),
    st.floats(0, 2e12),
    st.integers(1, 2**62),
)
def test_counts_are_exact_whatever_they_are(counts: dict[str, int], error: float, timestamp: int) -> None:
    fields = json.loads(RECORD) | {"counts": counts, "error": error, "timestamp": timestamp}
    value = published(orjson.dumps(fields), "avro", 2**31 - 1)
    back = json.loads(release.as_json(value))
    assert list(back["counts"].items()) == list(counts.items())
    assert back["error"] == dict.fromkeys(counts, error)
    assert release.first_fields(value) == ("visits", timestamp)


@pytest.mark.parametrize(
    ("change", "told"),
    [({"median": 3}, "its schema has no field median"), ({"counts": [1, 2]}, "its counts have no names")],
)
def test_what_the_schema_has_no_place_for_is_not_left_out(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        published(orjson.dumps(json.loads(RECORD) | change), "avro")


def test_a_release_of_a_later_schema_is_read_with_the_fields_that_it_has() -> None:
    later = json.loads(release.schema_text("avro"))
    later["fields"].append({"name": "median", "type": ["null", "long"], "default": None})
    body = GOLDEN["avro"][5:]
    unset = avro.as_json(AvroSchema(json.dumps(later)).read(body + b"\0"))
    assert json.loads(unset) == json.loads(RECORD)
    known = avro.as_json(AvroSchema(json.dumps(later)).read(body + b"\2\x06"))
    with pytest.raises(Exception, match="A later version of Eventveil may have written it"):
        decode(known, "here")


@pytest.mark.parametrize("found", [None, [], {"counts": 3}, {"counts": [{}]}, {"start": "soon"}, {"x": b"1"}])
def test_a_record_of_something_else_is_no_release(found: Any) -> None:
    with pytest.raises(ValueError, match=r"it is not a release|invalid literal"):
        avro.as_json(found)

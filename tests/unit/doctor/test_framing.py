"""In which format values are, whatever the file says, and what the doctor proposes then."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import fastavro
import pytest

from eventveil.decoding.avro import AvroSchema
from eventveil.decoding.protobuf import ProtobufSchema
from eventveil.decoding.rules import Decoder, Rejection
from eventveil.decoding.schemas import Unusable
from eventveil.doctor.diagnosis import remedy_of, setting_of
from eventveil.doctor.framing import Framing, framing_of
from eventveil.doctor.sample import SourceSample
from eventveil.doctor.sampling import schemas_of
from eventveil.model.topology import Discover
from tests.unit.doctor.making import FILE, framed, sample, topology
from tests.unit.doctor.test_proposal import counting, report, settings
from tests.unit.schema_registry.protos import KINDS, classes, file, message, text
from tests.unit.support import stream

VISIT = {
    "type": "record",
    "name": "Visit",
    "fields": [
        {"name": "customer", "type": "string"},
        {"name": "section", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
PROTO = file(
    "visit.proto",
    message(
        "Visit",
        ("customer", 1, KINDS.TYPE_STRING),
        ("section", 2, KINDS.TYPE_STRING),
        ("at", 3, KINDS.TYPE_INT64),
    ),
)
REGISTRY = "registry: {url: 'http://registry'}\n"
IN_SINK = "topic: shop.counts\n      format: json-schema"
BEHIND = "most values begin with the prefix of a schema registry (a zero byte and the id of a schema)"


def stated(form: str, base: str = FILE) -> str:
    return base.replace("      topic: shop.views\n", f"      topic: shop.views\n      format: {form}\n")


def with_registry(base: str = FILE, sink: bool = True) -> str:
    return REGISTRY + (base.replace("topic: shop.counts", IN_SINK) if sink else base)


def as_avro(one: dict[str, Any]) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(VISIT), one)
    return body.getvalue()


def as_protobuf(one: dict[str, Any]) -> bytes:
    return b"\0" + bytes(classes(PROTO)("shop.Visit")(**one).SerializeToString())


def avro(known: bool = True) -> SourceSample:
    made = framed(sample(), as_avro)
    return replace(made, schemas={7: AvroSchema(json.dumps(VISIT), [])}) if known else made


def protobuf() -> SourceSample:
    return replace(framed(sample(), as_protobuf), schemas={7: ProtobufSchema(text(PROTO), [])})


def test_json_behind_a_prefix_is_told_and_its_format_proposed() -> None:
    made = report(framed(sample()))
    told = "\n".join(made.lines())
    assert counting(made.before["views"]) == 0
    assert settings(made.proposal) == {"source.format": "json-schema"}
    assert counting(made.after["views"]) == 600
    assert f"source.format: {BEHIND} and JSON follows: format: json-schema, not json\n" in told
    assert "send a JSON document" not in told


@pytest.mark.parametrize(("form", "found"), [("avro", avro()), ("protobuf", protobuf())])
@pytest.mark.parametrize("before", ["json", "json-schema"])
def test_what_a_registry_says_of_the_schemas_is_proposed(form: str, found: SourceSample, before: str) -> None:
    made = report(found, with_registry(stated(before)))
    assert counting(made.before["views"]) == 0
    assert settings(made.proposal) == {"source.format": form}
    assert counting(made.after["views"]) == 600
    assert f"{BEHIND}, and these schemas are of {form}: format: {form}, not {before}\n" in "\n".join(
        made.lines()
    )


def test_all_streams_over_a_topic_get_one_format() -> None:
    start = FILE.index("  views:\n")
    second = FILE[start:].replace("views:", "again:", 1).replace("shop.counts", "shop.again")
    made = report(framed(sample()), FILE + second)
    assert {(one.stream, one.value) for one in made.proposal.changes} == {
        ("views", "json-schema"),
        ("again", "json-schema"),
    }


def test_one_binary_format_in_place_of_the_other_is_told() -> None:
    made = report(protobuf(), with_registry(stated("avro"), sink=False))
    assert settings(made.proposal) == {"source.format": "protobuf"}
    assert counting(made.after["views"]) == 600


def test_without_a_registry_the_remedy_says_what_to_add() -> None:
    made = report(avro(known=False))
    told = "\n".join(made.lines())
    assert settings(made.proposal) == {}
    assert f"source.format: {BEHIND} and no JSON follows: write format: avro or format: protobuf" in told
    assert "and registry: {url: https://...} at the top level" in told


@pytest.mark.parametrize("schema", [None, Unusable("it is of XML")])
def test_schemas_that_the_registry_does_not_know_are_of_another_one(schema: Unusable | None) -> None:
    made = report(replace(avro(), schemas={7: schema}), with_registry())
    assert settings(made.proposal) == {}
    assert "name the registry of the producer's serializer there" in "\n".join(made.lines())


@pytest.mark.parametrize("form", ["json-schema", "avro", "protobuf"])
def test_plain_json_where_the_file_says_otherwise_is_told(form: str) -> None:
    needed = form != "json-schema"
    made = report(sample(), with_registry(stated(form), sink=False) if needed else stated(form))
    # A registry that nothing needs any more would make the file invalid.
    assert settings(made.proposal) == {"source.format": "json"} | ({"registry": None} if needed else {})
    assert counting(made.after["views"]) == 600
    told = "\n".join(made.lines())
    assert f"most values are JSON without the prefix of a schema registry: format: json, not {form}\n" in told
    assert "registry:" not in made.proposal.text
    assert ("shop.yaml:1:1: registry: leave it out" in told) == needed


def test_pointers_into_avro_are_proposed_like_those_into_json() -> None:
    inner = VISIT | {"name": "Inner"}
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "data", "type": inner}]}

    def write(one: dict[str, Any]) -> bytes:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, fastavro.parse_schema(outer), {"data": one})
        return body.getvalue()

    found = replace(framed(sample("crc32"), write), schemas={7: AvroSchema(json.dumps(outer), [])})
    made = report(found, with_registry(stated("avro"), sink=False))
    assert settings(made.proposal) == {
        "source.user": "/data/customer",
        "source.partitioner": "crc32",
        "source.column": "/data/section",
        "source.time": "/data/at",
    }
    assert counting(made.after["views"]) == 600


def test_values_in_several_formats_are_told_apart_by_a_header() -> None:
    plain, behind = sample(), framed(sample(), as_avro)
    kinds = [one._replace(headers=[("kind", b"plain")]) for one in plain.records[:200]]
    mixed = replace(plain, records=[*kinds, *behind.records[200:]])
    by_kind = FILE.replace("      time: /at\n", "      time: /at\n      filter: {$headers/kind: plain}\n")
    assert report(mixed, by_kind).before["views"].framing == Framing(200, 200)
    assert settings(report(mixed, by_kind).proposal) == {}


def test_what_is_no_json_at_all_has_the_general_remedy() -> None:
    found = sample()
    made = report(replace(found, records=[one._replace(value=b"<xml/>") for one in found.records]))
    assert settings(made.proposal) == {}
    assert "send a JSON document in each value, or set the format: json for plain JSON" in "\n".join(
        made.lines()
    )


def test_a_registry_that_cannot_be_asked_is_a_note_where_the_file_needs_none_of_its_schemas() -> None:
    found = topology(with_registry().replace("http://registry", "http://127.0.0.1:9"))
    binary = [one.value for one in avro(known=False).records]
    schemas, (note,) = schemas_of(found, binary)
    assert (schemas, note[:42]) == ({}, "what schemas the values name is not known:")
    assert "the schema registry at http://127.0.0.1:9 cannot be queried" in note
    # Nobody is asked about JSON, with a prefix or without, nor by a file that has no registry.
    for one, values in ((found, framed(sample())), (found, sample()), (topology(), avro(known=False))):
        assert schemas_of(one, [record.value for record in values.records]) == ({}, [])


def test_numbers_alone_are_neither_json_nor_behind_a_prefix() -> None:
    assert framing_of([b"17", b"\0\0\0\0\7" + b"17", b"\0\0\0\0\0{}", None]) == Framing(3, 0, 1, 0)
    assert framing_of([]).found is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "no column can be called '', for it is empty"),
        ("x" * 65, f"no column can be called '{'x' * 65}', for it has 65 characters, longest is 64"),
        ("a\u200bb", "no column can be called 'a\\u200bb', for it has U+200B, which is invisible"),
    ],
)
def test_where_columns_are_found_no_remedy_is_to_list_one(name: str, why: str) -> None:
    found = stream(
        labels=("other",), discover=Discover(Fraction(1, 10), Fraction(1, 10**9), Fraction(1, 10), 10, 64)
    )
    verdict = Decoder(found.source, found.counts).decode({"user": "u", "column": name, "time": 1})
    assert isinstance(verdict, Rejection)
    assert verdict.detail.startswith(why)
    assert remedy_of(verdict.reason, verdict.detail, found).startswith(
        "map such texts to names by source.maps"
    )
    assert setting_of(verdict.reason, verdict.detail) == "source.column"

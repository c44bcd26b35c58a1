"""Values that Confluent's own serializers wrote, read by the schema that they name."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from eventveil.decoding import bulk, rules
from eventveil.decoding import protobuf as protobuf_module
from eventveil.decoding.avro import AvroSchema
from eventveil.decoding.places import Instant, compile_pointer
from eventveil.decoding.protobuf import ProtobufSchema
from eventveil.decoding.rules import Decoder, Event, Reason, Rejection, ValueDecoder, parse
from eventveil.decoding.schemas import PREFIX, Unfit, Unusable, schema_id
from eventveil.model.records import Schema
from eventveil.model.topology import Format
from tests.unit.schema_registry.protos import KINDS, classes, file, mapped, message, text, whole
from tests.unit.support import stream

LIMIT = 1_000_000
AT = 1_700_000_000_123


def framed(number: int, body: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + body


def written(schema: Mapping[str, Any], value: Any) -> tuple[bytes, Schema]:
    """What Confluent's serializer makes of a value, and the schema that it registered."""
    client = SchemaRegistryClient.new_client({"url": "mock://avro"})
    serializer = AvroSerializer(client, json.dumps(schema))
    made = serializer(value, SerializationContext("orders", MessageField.VALUE))
    number = schema_id(made)
    assert number is not None
    return made, AvroSchema(client.get_schema(number).schema_str or "")


def read(value: bytes, schema: Schema | None, form: Format = "avro") -> Any:
    return parse(value, LIMIT, form, {schema_id(value) or 0: schema})


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


ORDER = record(
    "Order",
    user=["null", record("User", id="long", tags={"type": "map", "values": "string"})],
    page=["string", "null"],
    kind={"type": "enum", "name": "Kind", "symbols": ["VIEWED", "BOUGHT"]},
    at=logical("long", "timestamp-millis"),
    fine=logical("long", "timestamp-micros"),
    local=logical("long", "local-timestamp-millis"),
    day=logical("int", "date"),
    price=logical("bytes", "decimal", precision=6, scale=2),
    number=logical("string", "uuid"),
    lines={"type": "array", "items": record("Line", sku="string")},
    last="User",
)
USER = {"id": 7, "tags": {"plan": "free"}}
MOMENT = datetime.fromtimestamp(AT / 1000, UTC)
VALUE = {
    "user": USER,
    "page": None,
    "kind": "BOUGHT",
    "at": MOMENT,
    "fine": MOMENT,
    "local": MOMENT.replace(tzinfo=None),
    "day": date(2026, 11, 23),
    "price": Decimal("12.34"),
    "number": UUID(int=5),
    "lines": [{"sku": "a"}, {"sku": "b"}],
    "last": USER,
}


def test_avro_records_unions_enums_maps_and_logical_types_are_read_as_json_would_have_them() -> None:
    value, schema = written(ORDER, VALUE)
    assert read(value, schema) == {
        "user": {"id": 7, "tags": {"plan": "free"}},
        "page": None,
        "kind": "BOUGHT",
        "at": AT,
        "fine": AT,
        "local": "2023-11-14T22:13:20.123000",
        "day": "2026-11-23",
        "price": Decimal("12.34"),
        "number": str(UUID(int=5)),
        "lines": [{"sku": "a"}, {"sku": "b"}],
        "last": USER,
    }


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"user": "/user/id", "user_type": "integer", "column": "/kind"}, Event(b"7", 0, AT)),
        ({"user": "/user/tags/plan", "column": "/lines/1/sku"}, Event(b"free", 2, AT)),
        # The unit is that of numbers, not of what a schema says is a timestamp.
        ({"user": "/number", "column": "/kind", "time": "/fine", "time_unit": "s"}, None),
        ({"user": "/number", "column": "/kind", "time": "/local", "time_zone": "UTC"}, None),
        ({"user": "/number", "column": "/day"}, Event(str(UUID(int=5)).encode(), 1, AT)),
        (
            {"user": "/price", "column": "/kind"},
            Rejection(Reason.WRONG_TYPE, "the user at /price should be a string, not Decimal"),
        ),
        (
            {"user": "/number", "column": "/price"},
            Rejection(Reason.WRONG_TYPE, "the column at /price should be a string, not Decimal"),
        ),
        ({"user": "/page", "column": "/kind"}, Reason.WRONG_TYPE),
        ({"user": "/user/id/string", "column": "/kind"}, Reason.MISSING_FIELD),
    ],
)
def test_pointers_find_the_fields_of_an_avro_record(changes: dict[str, Any], found: Any) -> None:
    value, schema = written(ORDER, VALUE)
    one = stream(**{"labels": ("BOUGHT", "2026-11-23", "b"), "time": "/at", "format": "avro", **changes})
    verdict = Decoder(one.source, one.counts).decode(read(value, schema))
    if isinstance(found, Reason):
        assert isinstance(verdict, Rejection)
        assert verdict.reason == found
    else:
        assert verdict == (found or Event(str(UUID(int=5)).encode(), 0, AT))


def test_a_value_stream_reads_avro_too() -> None:
    from fractions import Fraction

    from eventveil.model.topology import ReadingStream, ValueMechanism, ValueSource

    value, schema = written(record("Trip", minutes="double"), {"minutes": 7.0})
    source = ValueSource("trips", "/minutes", "avro")
    one = ReadingStream("m", source, 10, Fraction(1), "1", ValueMechanism("tops", Fraction(1), "1"), "s")
    assert ValueDecoder(one).decode(value, {schema_id(value) or 0: schema}) == (7, None)
    assert ValueDecoder(one).decode(value, {schema_id(value) or 0: None}) == (0, Reason.UNKNOWN_SCHEMA)


OLD = record("Visit", user="string", amount="int")
NEW = {**record("Visit", customer="string", amount="long", country=["null", "string"])}
NEW["fields"][0]["aliases"] = ["user"]


def test_a_schema_with_a_field_added_widened_and_renamed_with_an_alias_goes_on_by_the_old_pointers() -> None:
    one = stream(user="/user", column="/amount", time="$time", column_type="integer", labels=("7", "8"))
    decoder = Decoder(one.source, one.counts)
    for schema, value, column in (
        (OLD, {"user": "u", "amount": 7}, 0),
        (NEW, {"customer": "u", "amount": 8, "country": "DE"}, 1),
    ):
        made, known = written(schema, value)
        document = read(made, known)
        assert decoder._column(document, None) == column  # type: ignore[arg-type]
        assert decoder.user(document) == b"u"
    assert document == {"customer": "u", "user": "u", "amount": 8, "country": "DE"}


def test_aliases_are_found_wherever_a_record_is_and_never_hide_a_field() -> None:
    inner = record("Inner", id="string", old="string")
    inner["fields"][0]["aliases"] = ["name", "old"]
    outer = record(
        "Outer",
        one=["null", "string", {"type": "map", "values": "int"}, inner],
        many={"type": "array", "items": "Inner"},
        by={"type": "map", "values": ["null", "Inner"]},
    )
    value = {"id": "7", "old": "o"}
    expected = {"id": "7", "old": "o", "name": "7"}
    made, schema = written(outer, {"one": value, "many": [value], "by": {"a": value, "b": None}})
    assert read(made, schema) == {"one": expected, "many": [expected], "by": {"a": expected, "b": None}}


def test_types_from_other_subjects_are_known() -> None:
    user = json.dumps(record("User", id="string"))
    visit = json.dumps(record("Visit", who="User", again="User"))
    schema = AvroSchema(visit, [user])
    assert schema.read(b"\x02a\x02b") == {"who": {"id": "a"}, "again": {"id": "b"}}


@pytest.mark.parametrize(
    ("schema", "body", "told"),
    [
        (record("E", a="string"), b"", "EOFError"),
        (record("E", a="string"), b"\x04a", "EOFError"),
        (record("E", a="string"), b"\x02\xff", "UnicodeDecodeError"),
        (record("E", a="string"), b"\x02ab", "1 bytes are left over"),
        (record("E", a=["null", "string"]), b"\x08", "IndexError"),
        (record("E", a={"type": "enum", "name": "K", "symbols": ["A"]}), b"\x08", "IndexError"),
        (record("E", a="long"), b"\xff" * 11, ""),
        (record("E", a={"type": "array", "items": "int"}), b"\xfe\xff\xff\xff\x0f", "EOFError"),
        # In C, this would end the process.
        (record("E", a=["null", "E"]), b"\x02" * 100_000 + b"\0", "it is nested more than 64 deep"),
    ],
)
def test_bytes_that_do_not_fit_are_a_verdict_on_their_record(
    schema: dict[str, Any], body: bytes, told: str
) -> None:
    verdict = read(framed(7, body), AvroSchema(json.dumps(schema)))
    assert isinstance(verdict, Rejection)
    assert verdict.reason == Reason.NOT_OF_SCHEMA
    assert verdict.detail.startswith(f"schema 7: {told}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "it is not an Avro schema"),
        (json.dumps(record("E", a="Unknown")), "it is not an Avro schema"),
        (json.dumps(record("E", a={"type": "array", "items": "null"})), "take no bytes"),
        (json.dumps(record("E", a={"type": "array", "items": record("N", b="null")})), "take no bytes"),
        (json.dumps(record("E", a={"type": "array", "items": "E"})), None),
        (json.dumps({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}), "take no bytes"),
    ],
)
def test_a_schema_that_could_make_few_bytes_endless_is_not_used(text: str, told: str | None) -> None:
    if told is None:
        assert AvroSchema(text).read(b"\x02\0\0") == {"a": [{"a": []}]}
        return
    with pytest.raises(Unfit, match=told):
        AvroSchema(text)


def beneath(frames: int, work: Callable[[], Any]) -> Any:
    return beneath(frames - 1, work) if frames else work()


def many(kind: str, schema: Any) -> dict[str, Any]:
    return {"type": kind, "items" if kind == "array" else "values": schema}


@pytest.mark.parametrize(
    ("schema", "begin", "step", "end", "behind", "deepest"),
    [
        (record("E", a=["null", "E"]), b"", b"\x02", b"\0", b"", 64),
        (record("E", a=many("array", "E")), b"", b"\x02", b"\0", b"\0", 32),
        (
            record("Top", e=["null", record("E", a=["null", record("F", e="E")])]),
            b"\x02",
            b"\x02",
            b"\0",
            b"",
            31,
        ),
        (many("map", record("E", a=many("map", "E"))), b"\x02\x02k", b"\x02\x02k", b"\0\0", b"\0", 31),
    ],
)
def test_how_deep_a_recursive_schema_is_read_depends_on_the_value_alone(
    schema: dict[str, Any], begin: bytes, step: bytes, end: bytes, behind: bytes, deepest: int
) -> None:
    """Above all not on the stack of the caller: then other events of a chunk would decide."""
    known = AvroSchema(json.dumps(schema))
    for depth in (0, 1, *range(deepest - 5, deepest + 5), *range(150, 250, 5), 100_000):
        value = framed(7, begin + step * depth + end + behind * depth)
        verdicts = [beneath(frames, lambda value=value: read(value, known)) for frames in (0, 50, 500)]  # type: ignore[misc]
        if depth > deepest:
            told = Rejection(Reason.NOT_OF_SCHEMA, "schema 7: it is nested more than 64 deep")
            assert verdicts == [told] * 3, depth
        else:
            assert [*map(type, verdicts)] == [dict] * 3, (depth, verdicts)
            assert verdicts[1:] == verdicts[:-1]


def nested(depth: int) -> Any:
    return many("array", nested(depth - 1)) if depth else "int"


@pytest.mark.parametrize("frames", [0, 50, 500])
def test_which_schema_can_be_used_does_not_depend_on_the_stack_of_the_caller(frames: int) -> None:
    chain: list[Any] = [record("T0", a="int")]
    for number in range(1, 501):
        chain.append(record(f"T{number}", a=["null", f"T{number - 1}"]))
    texts = [json.dumps(one) for one in chain]

    def usable(text: str, references: list[str]) -> bool:
        try:
            AvroSchema(text, references)
        except Unfit:
            return False
        return True

    found = [
        beneath(frames, lambda: usable(json.dumps(nested(50)), [])),
        beneath(frames, lambda: usable(json.dumps(nested(150)), [])),
        beneath(frames, lambda: usable(json.dumps(nested(151)), [])),
        beneath(frames, lambda: usable(texts[499], texts[:499])),
        beneath(frames, lambda: usable(texts[500], texts[:500])),
    ]
    assert found == [True, True, False, True, False]
    doc = json.dumps({**record("E", a="int"), "doc": 'a "[" or [[[' * 100})
    assert beneath(frames, lambda: usable(doc, []))


@pytest.mark.parametrize("types", [9, 10, 100])
def test_records_without_bytes_do_not_take_forever(types: int) -> None:
    """Each has two of the one before: a hundred would be 2^100 values."""
    texts = [json.dumps(record("R0", a="null"))]
    texts += [json.dumps(record(f"R{one}", a=f"R{one - 1}", b=f"R{one - 1}")) for one in range(1, types)]
    whole = json.dumps(record("Event", user="string", more=f"R{types - 1}"))
    if types == 9:
        assert AvroSchema(whole, texts).read(b"\x02u")["user"] == "u"
    else:
        with pytest.raises(Unfit, match="a record of more than 1000 values that take no bytes"):
            AvroSchema(whole, texts)


@pytest.mark.parametrize("error", [MemoryError, RecursionError])
def test_what_says_nothing_of_the_bytes_is_no_verdict(error: type[Exception]) -> None:
    class Failing:
        form: str | None = "avro"

        def read(self, body: bytes) -> Any:
            raise error

    with pytest.raises(error):
        read(framed(7, b""), Failing())


def test_json_for_which_memory_runs_out_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def loads(value: bytes) -> Any:
        raise orjson.JSONDecodeError("Not enough memory to allocate buffer for parsing", "", 0)

    monkeypatch.setattr(rules.orjson, "loads", loads)
    with pytest.raises(MemoryError):
        parse(b"{}", LIMIT, "json", {})
    with pytest.raises(MemoryError):
        bulk._found(dict, map(loads, [b"{}"]), 1)


def test_aliases_are_found_at_every_depth_of_a_recursive_schema() -> None:
    one = record("E", a=["null", "E"])
    one["fields"][0]["aliases"] = ["b"]
    document = AvroSchema(json.dumps(one)).read(b"\x02" * 60 + b"\0")
    for _ in range(60):
        assert document["a"] is document["b"]
        document = document["b"]
    assert document == {"a": None, "b": None}


def test_types_that_can_hold_each_other_are_found_by_their_own_names() -> None:
    other = record("org.other.E", a=["null", "shop.E"])
    names = record("shop.E", at="long", a=["null", "E", other], b=["null", "org.other.E"])
    schema = AvroSchema(json.dumps(names))
    inner = b"\x04" + b"\0" + b"\0"  # at 2, nothing, nothing
    assert schema.read(b"\x02" + b"\x04\x02" + inner + b"\x02\0") == {
        "at": 1,
        "a": {"a": {"at": 2, "a": None, "b": None}},
        "b": {"a": None},
    }


@pytest.mark.parametrize("further", [{}, {"more": ["null", "E"]}])
def test_no_number_is_larger_than_64_bits(further: dict[str, Any]) -> None:
    """Python would need seconds for one of a megabyte, and nothing else could be done with it."""
    schema = AvroSchema(json.dumps(record("E", a="long", **further)))
    for length in (1, 9, 10, 11, 3_000, 1_000_000):
        with suppress(Unfit):
            found = schema.read(b"\xff" * length + b"\x01" + b"\0" * len(further))
            assert abs(found["a"]) <= 2**63


class _Other:
    form: str | None = "protobuf"

    def read(self, body: bytes) -> Any:
        raise AssertionError


@pytest.mark.parametrize(
    ("value", "schema", "reason", "told"),
    [
        (b"{}", None, Reason.NOT_OF_SCHEMA, "it does not begin with a zero byte"),
        (b"\x01\0\0\0\x07x", None, Reason.NOT_OF_SCHEMA, "it does not begin with a zero byte"),
        (framed(0, b"x"), None, Reason.NOT_OF_SCHEMA, "0 is not the id of a schema, which is from 1 to 2147"),
        (framed(2**31, b"x"), None, Reason.NOT_OF_SCHEMA, "2147483648 is not the id of a schema"),
        (framed(7, b"x"), None, Reason.UNKNOWN_SCHEMA, "the registry knows no schema with id 7"),
        (framed(7, b"x"), Unusable("it is of JSON"), Reason.NOT_OF_SCHEMA, "schema 7: it is of JSON"),
        (framed(7, b"x"), Unusable("as text", "protobuf"), Reason.NOT_OF_SCHEMA, "schema 7 is of protobuf"),
        (framed(7, b"x"), _Other(), Reason.NOT_OF_SCHEMA, "schema 7 is of protobuf, and the source has"),
    ],
)
def test_a_value_without_a_schema_that_fits_is_told_why(
    value: bytes, schema: Schema | None, reason: Reason, told: str
) -> None:
    verdict = parse(value, LIMIT, "avro", {7: schema})
    assert isinstance(verdict, Rejection)
    assert verdict.reason == reason
    assert verdict.detail.startswith(told)


# Protobuf

STATUS = KINDS.TYPE_INT32


def chain(types: int, *, inside_first: bool = False) -> ProtobufSchema:
    """Messages in one another, the last of which has none. The first one of the file is M0."""
    messages = [
        message(f"M{one}", ("user", 1, KINDS.TYPE_STRING), ("next", 2, f".shop.M{one + 1}"))
        for one in range(types)
    ]
    last = message(f"M{types}", ("user", 1, KINDS.TYPE_STRING))
    first, *others = [*messages, last]
    return ProtobufSchema(text(file("chain.proto", first, *(others[::-1] if inside_first else others))))


@pytest.mark.parametrize("frames", [0, 30, 500])
def test_how_many_types_a_schema_may_have_in_one_another_does_not_depend_on_the_caller(frames: int) -> None:
    value = framed(7, b"\0\x0a\x01u\x12\x03\x0a\x01v")

    def by_chain_of(types: int) -> Any:
        document = read(value, chain(types), "protobuf")
        return document["user"], document["next"]["user"]

    for types in (5, 150, 200):
        assert beneath(frames, lambda types=types: by_chain_of(types)) == ("u", "v")  # type: ignore[misc]
    assert beneath(frames, lambda: by_chain_of(1_000)) == ("u", "v")
    with pytest.raises(Unfit, match="its types are nested too deeply"):
        beneath(frames, lambda: chain(1_000, inside_first=True))


def test_a_first_value_for_which_memory_runs_out_does_not_spoil_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema, field = chain(3), protobuf_module._Field

    def failing(*_: Any) -> Any:
        monkeypatch.setattr(protobuf_module, "_Field", field)
        raise MemoryError

    monkeypatch.setattr(protobuf_module, "_Field", failing)
    value = framed(7, b"\0\x0a\x01u")
    with pytest.raises(MemoryError):
        read(value, schema, "protobuf")["user"]
    assert read(value, schema, "protobuf")["user"] == "u"


def _event() -> Any:
    made = message(
        "Event",
        ("user", 1, ".shop.Event.User"),
        ("page", 2, KINDS.TYPE_STRING),
        ("at", 3, ".google.protobuf.Timestamp"),
        ("card", 4, KINDS.TYPE_STRING),
        ("cash", 5, KINDS.TYPE_INT64),
        ("tags", 6, ".shop.Event.TagsEntry"),
        ("kind", 7, "$.shop.Event.Kind"),
        ("coupon", 8, ".google.protobuf.StringValue"),
        ("more", 9, ".google.protobuf.Struct"),
        ("lines", 10, ".shop.Line"),
        ("flags", 11, ".shop.Event.FlagsEntry"),
        ("raw", 12, KINDS.TYPE_BYTES),
        ("big", 13, KINDS.TYPE_UINT64),
        repeated=("tags", "lines", "flags"),
    )
    made.oneof_decl.add(name="paid")
    made.field[3].oneof_index = made.field[4].oneof_index = 0
    made.nested_type.extend(
        [
            message("User", ("id", 1, KINDS.TYPE_INT64), ("above", 2, ".shop.Event.User")),
            mapped("TagsEntry", KINDS.TYPE_STRING, KINDS.TYPE_STRING),
            mapped("FlagsEntry", KINDS.TYPE_BOOL, ".shop.Line"),
        ]
    )
    kind = made.enum_type.add(name="Kind")
    for number, name in enumerate(("VIEWED", "BOUGHT")):
        kind.value.add(name=name, number=number)
    return made


LINE = file("line.proto", message("Line", ("sku", 1, KINDS.TYPE_STRING)))
EVENT = file("event.proto", message("Other", ("a", 1, STATUS)), _event(), imports=("line.proto",))
NOTHING = {"page": "", "tags": {}, "kind": "VIEWED", "lines": [], "flags": {}, "raw": b"", "big": 0}


def protobuf() -> ProtobufSchema:
    return ProtobufSchema(text(EVENT), [("line.proto", text(LINE))])


def test_protobuf_messages_that_confluents_serializer_wrote_are_read_as_json_would_have_them() -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://protobuf"})
    made = classes(LINE, EVENT)("shop.Event")
    one = made(page="/", card="visa", kind=1, raw=b"\xff", big=2**64 - 1)
    one.user.id, one.user.above.id = 7, 8
    one.at.FromMilliseconds(AT)
    one.tags["plan"] = "free"
    one.coupon.value = ""
    one.more.update({"a": [1.5, None]})
    one.lines.add(sku="x")
    one.flags[True].sku = "y"
    serializer = ProtobufSerializer(made, client, {"use.deprecated.format": False})
    value = serializer(one, SerializationContext("events", MessageField.VALUE)) or b""
    number = schema_id(value) or 0
    found = client.get_schema(number)
    line = client.get_latest_version("line.proto").schema.schema_str or ""
    schema = ProtobufSchema(found.schema_str or "", [("line.proto", line)])
    document = read(value, schema, "protobuf")
    assert whole(document) == {
        "user": {"id": 7, "above": {"id": 8}},
        "page": "/",
        "at": AT,
        "card": "visa",
        "tags": {"plan": "free"},
        "kind": "BOUGHT",
        "coupon": "",
        "more": {"a": [1.5, None]},
        "lines": [{"sku": "x"}],
        "flags": {"true": {"sku": "y"}},
        "raw": b"\xff",
        "big": 2**64 - 1,
    }
    assert type(document["at"]) is Instant
    rules = {"user": "/user/id", "user_type": "integer", "column": "/tags/plan", "time": "/at"}
    one_stream = stream(labels=("free",), format="protobuf", time_unit="ns", **rules)
    assert Decoder(one_stream.source, one_stream.counts).decode(document) == Event(b"7", 0, AT)


def test_fields_that_were_not_set_have_their_default_or_are_not_there() -> None:
    made = classes(LINE, EVENT)("shop.Event")
    assert whole(protobuf().read(b"\x02\x02" + made().SerializeToString())) == NOTHING
    # A number that the schema has no name for.
    found = protobuf().read(b"\x02\x02" + made(kind=9).SerializeToString())
    assert whole(found) == {**NOTHING, "kind": 9}
    for absent in ("user", "coupon", "card", "nothing"):
        with pytest.raises(KeyError):
            found[absent]


def test_the_message_is_the_one_that_the_indices_name() -> None:
    made = classes(LINE, EVENT)
    assert whole(protobuf().read(b"\0" + made("shop.Other")(a=-5).SerializeToString())) == {"a": -5}
    user = made("shop.Event.User")(id=3).SerializeToString()
    assert whole(protobuf().read(b"\x04\x02\0" + user)) == {"id": 3}


def test_a_flood_of_empty_messages_takes_no_more_memory_than_its_pointers_lead_to() -> None:
    body = b"\x02\x02" + b"\x12\x01p" + b"\x52\0" * 100_000
    schema = protobuf()
    schema.read(body[:5])
    tracemalloc.start()
    try:
        assert compile_pointer("/page")(schema.read(body)) == "p"
        assert tracemalloc.get_traced_memory()[1] < 600_000
        assert compile_pointer("/lines/99999/sku")(schema.read(body)) == ""
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()


def test_what_cannot_be_read_in_one_field_is_no_text_there_and_leaves_the_others_alone() -> None:
    # A Struct with a number that is not in JSON.
    body = b"\x02\x02" + b"\x12\x01p" + b"\x4a\x10\x0a\x0e\x0a\x01n\x12\x09\x11" + b"\0" * 6 + b"\xf8\x7f"
    document = protobuf().read(body)
    assert document["page"] == "p"
    assert document["more"] == b""


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "it does not say which message it is"),
        (b"\xff" * 20, "it does not say which message it is"),
        (b"\x02", "it does not say which message it is"),
        (b"\x02\x10", "it has no message 8"),
        (b"\x02\x01", "it has no message -1"),
        (b"\x01", "it names a message by -1 indices"),
        (b"\xfe\xff\x03", "it names a message by"),
        (b"\0\xff", "DecodeError"),
        (b"\x02\x02\x12\x01\xff", "DecodeError"),
        (b"\x02\x02" + b"\x0a\x7f", "DecodeError"),
    ],
)
def test_bytes_that_are_no_such_message_are_a_verdict_on_their_record(body: bytes, told: str) -> None:
    verdict = read(framed(7, body), protobuf(), "protobuf")
    assert isinstance(verdict, Rejection)
    assert verdict.reason == Reason.NOT_OF_SCHEMA
    assert verdict.detail.startswith(f"schema 7: {told}")


@pytest.mark.parametrize("wrong", ["", "syntax = 'proto3';", text(EVENT)])
def test_what_is_no_descriptor_or_lacks_an_import_is_no_schema(wrong: str) -> None:
    if wrong:
        with pytest.raises(Unfit, match="it is no"):
            ProtobufSchema(wrong)
    else:
        with pytest.raises(Unfit, match="it has no message 0"):
            ProtobufSchema(wrong).read(b"\0")


# Each event alone (I5): whatever bytes came before, and whatever else is in a chunk

_SCHEMAS: dict[int, Schema | None] = {
    1: AvroSchema(json.dumps(OLD)),
    2: AvroSchema(json.dumps(NEW)),
    3: AvroSchema(json.dumps(record("E", user=["null", "E", "string"]))),
    4: None,
}
_BODIES = st.one_of(st.binary(max_size=40), st.sampled_from([b"\x02u\x0e", b"\x02u\x0e\x02\x02D"]))
_VALUES = st.one_of(
    st.none(), st.binary(max_size=12), st.builds(framed, st.sampled_from([*_SCHEMAS]), _BODIES)
)


@given(st.lists(_VALUES, max_size=8))
def test_the_verdict_on_a_value_depends_on_it_and_its_schema_alone(values: list[bytes | None]) -> None:
    def judged(value: bytes | None, schemas: Mapping[int, Schema | None]) -> Any:
        return repr(parse(value, LIMIT, "avro", schemas))

    known = {one: _SCHEMAS.get(one) for one in {schema_id(value) for value in values if value} - {None}}
    together = [judged(value, known) for value in values]  # type: ignore[arg-type]
    fresh = {1: AvroSchema(json.dumps(OLD)), 2: AvroSchema(json.dumps(NEW)), 3: _SCHEMAS[3], 4: None}
    for value, verdict in zip(reversed(values), reversed(together), strict=True):
        number = schema_id(value) if value else None
        alone = {} if number is None else {number: fresh.get(number)}
        assert judged(value, alone) == verdict


@given(st.binary(max_size=60))
def test_no_bytes_make_a_protobuf_value_more_than_a_verdict(body: bytes) -> None:
    verdict = read(framed(1, body), protobuf(), "protobuf")
    assert isinstance(verdict, Rejection | dict)
    assert len(framed(1, body)) == PREFIX + len(body)


class ShortOfMemory:
    form: str | None = None

    def read(self, body: bytes) -> Any:
        raise MemoryError


def test_too_little_memory_is_no_verdict_on_a_value() -> None:
    """With more of it the value may count; a verdict would be durable."""
    with pytest.raises(MemoryError):
        read(framed(7, b"x"), ShortOfMemory())


@pytest.mark.parametrize(
    ("where", "make"),
    [
        ("avro.parse_schema", lambda: AvroSchema(json.dumps(ORDER))),
        ("protobuf.base64.b64decode", protobuf),
        ("protobuf._file", protobuf),
    ],
)
def test_too_little_memory_is_no_verdict_on_a_schema(
    where: str, make: Callable[[], Schema], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schema that is no use is kept as such, and all of its values would be dead letters."""

    def short(*_: object, **__: object) -> None:
        raise MemoryError

    make()
    monkeypatch.setattr(f"eventveil.decoding.{where}", short)
    with pytest.raises(MemoryError):
        make()


def test_the_digits_of_a_long_decimal_are_not_computed() -> None:
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    fields = [{"name": "user", "type": "string"}, {"name": "amount", "type": amount}]
    schema = AvroSchema(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    short = schema.read(b"\x02u\x04\x04\xd2")
    long = schema.read(b"\x02u\x82\x01" + 65 * b"\x7f")
    assert short == {"user": "u", "amount": Decimal("12.34")}
    assert long["user"] == "u"
    assert long["amount"].is_nan()

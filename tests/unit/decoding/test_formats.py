"""The same in every format of a source: schemas that evolve, CloudEvents, and what is around a value."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, get_args

import pytest

from eventveil.decoding.places import Envelope
from eventveil.decoding.protobuf import ProtobufSchema
from eventveil.decoding.rules import Decoder, Event, Reason, Rejection, parse
from eventveil.model.records import Schema
from eventveil.model.topology import Condition, Format
from tests.unit.decoding.test_schemas import framed, record, written
from tests.unit.schema_registry.protos import KINDS, classes, file, message, text
from tests.unit.support import stream

FORMATS: tuple[Format, ...] = get_args(Format)
AT = 1_700_000_000_123
LARGE = 2**40
Written = tuple[bytes, Schema | None]
_AVRO = {int: "int", str: "string"}
_PROTOBUF = {int: KINDS.TYPE_INT32, str: KINDS.TYPE_STRING}


def plain(value: dict[str, Any], **_: Any) -> Written:
    return json.dumps(value).encode(), None


def prefixed(value: dict[str, Any], **_: Any) -> Written:
    return framed(7, json.dumps(value).encode()), None


def avro(
    value: dict[str, Any], wide: tuple[str, ...] = (), aliases: dict[str, list[str]] | None = None
) -> Written:
    schema = _avro("Event", value, wide)
    for field in schema["fields"]:
        if names := (aliases or {}).get(field["name"]):
            field["aliases"] = names
    return written(schema, value)


def _avro(name: str, value: dict[str, Any], wide: tuple[str, ...]) -> dict[str, Any]:
    def kind(field: str, one: Any) -> Any:
        if isinstance(one, dict):
            return _avro(field.title(), one, wide)
        return "long" if field in wide else _AVRO[type(one)]

    return record(name, **{field: kind(field, one) for field, one in value.items()})


def protobuf(value: dict[str, Any], wide: tuple[str, ...] = (), **_: Any) -> Written:
    messages: list[Any] = []

    def described(name: str, fields: dict[str, Any]) -> str:
        parts: list[tuple[str, int, Any]] = []
        for number, (field, one) in enumerate(fields.items(), 1):
            if isinstance(one, dict):
                parts.append((field, number, described(field.title(), one)))
            else:
                parts.append((field, number, KINDS.TYPE_INT64 if field in wide else _PROTOBUF[type(one)]))
        messages.append(message(name, *parts))
        return f".shop.{name}"

    described("Event", value)
    made = file("event.proto", *messages)
    one = classes(made)("shop.Event")(**value)
    # Which message of the file it is: the last one, after its parts.
    index = bytes([2, 2 * (len(messages) - 1)]) if len(messages) > 1 else b"\0"
    return framed(7, index + one.SerializeToString()), ProtobufSchema(text(made))


WRITERS: dict[Format, Callable[..., Written]] = {
    "json": plain, "json-schema": prefixed, "avro": avro, "protobuf": protobuf,
}  # fmt: skip


def judged(
    form: Format, made: Written, envelope: Envelope | None = None, **places: Any
) -> Event | Rejection | None:
    value, schema = made
    ids = {int.from_bytes(value[1:5], "big"): schema} if schema is not None else {}
    where = {"user": "/user", "column": "/page", "time": "/at", "labels": ("home", "shoes")}
    one = stream(format=form, **{**where, **places})
    document = parse(value, 1_000_000, form, ids)
    return Decoder(one.source, one.counts).decode(document, envelope or Envelope(None, (), 0))


@pytest.mark.parametrize("form", FORMATS)
def test_a_field_that_is_added_changes_nothing(form: Format) -> None:
    old = {"user": "u", "page": "shoes", "at": 1000}
    for value in (old, {"country": "DE", **old, "basket": {"sku": "x", "pieces": 3}}):
        assert judged(form, WRITERS[form](value)) == Event(b"u", 1, 1000)


@pytest.mark.parametrize("form", FORMATS)
def test_a_field_that_is_widened_is_found_with_old_values_and_large_ones(form: Format) -> None:
    def of(user: int, **changes: Any) -> Event | Rejection | None:
        value = {"user": user, "page": "home", "at": 1000}
        return judged(form, WRITERS[form](value, **changes), user_type="integer")

    assert of(7) == of(7, wide=("user",)) == Event(b"7", 0, 1000)
    assert of(LARGE, wide=("user",)) == Event(b"%d" % LARGE, 0, 1000)


@pytest.mark.parametrize("form", FORMATS)
def test_a_field_that_is_renamed_is_found_by_both_names_and_in_avro_by_its_alias(form: Format) -> None:
    old = WRITERS[form]({"user": "u", "page": "home", "at": 1000})
    new = WRITERS[form]({"customer": "u", "page": "home", "at": 1000})
    listed = "[" + ", ".join(json.dumps(one) for one in ("/customer", "/user")) + "]"
    for one in (old, new):
        assert judged(form, one, user=listed) == Event(b"u", 0, 1000)
    missing = judged(form, new)
    assert isinstance(missing, Rejection)
    assert missing.reason == Reason.MISSING_FIELD
    if form == "avro":
        aliased = avro({"customer": "u", "page": "home", "at": 1000}, aliases={"customer": ["user"]})
        assert judged(form, aliased) == Event(b"u", 0, 1000)


@pytest.mark.parametrize("form", FORMATS)
def test_a_cloud_event_has_its_attributes_in_headers_in_binary_mode_and_in_the_value_in_structured_mode(
    form: Format,
) -> None:
    event = {"user": "u", "page": "shoes"}
    headers = (("ce_type", b"seen"), ("ce_time", b"2026-01-01T00:00:00Z"))
    binary = judged(
        form, WRITERS[form](event), Envelope(b"k", headers, AT), time="$headers/ce_time",
        filter=(Condition("$headers/ce_type", "in", ("seen",)),),
    )  # fmt: skip
    whole = {"specversion": "1.0", "type": "seen", "time": "2026-01-01T00:00:00Z", "data": event}
    structured = judged(
        form, WRITERS[form](whole), user="/data/user", column="/data/page", time="/time",
        filter=(Condition("/type", "in", ("seen",)),),
    )  # fmt: skip
    assert binary == structured == Event(b"u", 1, 1_767_225_600_000)
    other = judged(form, WRITERS[form]({**whole, "type": "other"}), user="/data/user", column="/data/page",
                   time="/time", filter=(Condition("/type", "in", ("seen",)),))  # fmt: skip
    assert other is None


@pytest.mark.parametrize("form", FORMATS)
def test_key_headers_and_the_brokers_time_are_fields_beside_a_value_of_any_format(form: Format) -> None:
    around = Envelope(b"customer-7", (("page", b"shoes"),), AT)
    value = WRITERS[form]({"user": "u", "page": "home", "at": 1000})
    assert judged(form, value, around, user="$key") == Event(b"customer-7", 0, 1000)
    assert judged(form, value, around, column="$headers/page") == Event(b"u", 1, 1000)
    assert judged(form, value, around, time="$time") == Event(b"u", 0, AT)

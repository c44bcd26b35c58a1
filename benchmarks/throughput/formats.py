"""``python -m benchmarks.throughput.formats``: what a source in another format than JSON costs.

The events are those of ``benchmarks.throughput.rules``, and everybody counts the same ones: in JSON they are
read in arrays, in every other format one by one. Processor time of decoding and counting a chunk of 65,536
events, the median of five rounds in turn, and the bytes of an event. ``make bench`` has them as a series.
"""

from __future__ import annotations

import base64
import io
import json
import statistics
import time
from array import array
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import fastavro
import orjson
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from benchmarks.throughput.rules import CHUNK, judge, make_records, streams
from eventveil.decoding.avro import AvroSchema
from eventveil.decoding.protobuf import ProtobufSchema
from eventveil.model.records import Chunk, Schema
from eventveil.model.topology import Stream

_PREFIX = b"\0\0\0\0\7"
_TEXTS = ("specversion", "type", "source", "id", "time")
_Event = Mapping[str, Any]


def avro(events: list[_Event]) -> tuple[list[bytes], Schema]:
    """The events as records, with a nested record for ``data`` and one for its ``user``."""
    user = _record("User", id="string")
    data = _record("Data", user=user, **dict.fromkeys(("session", "section", "page", "country"), "string"))
    schema = _record("Event", **dict.fromkeys(_TEXTS, "string"), at="long", data=data)
    parsed, values = fastavro.parse_schema(schema), []
    for event in events:
        file = io.BytesIO()
        fastavro.schemaless_writer(file, parsed, event)
        values.append(_PREFIX + file.getvalue())
    return values, AvroSchema(json.dumps(schema))


def _record(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind in fields.items()],
    }


def protobuf(events: list[_Event]) -> tuple[list[bytes], Schema]:
    """The events as messages, nested alike."""
    file = descriptor_pb2.FileDescriptorProto(name="event.proto", package="shop", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in {
        "User": {"id": kinds.TYPE_STRING},
        "Data": {"user": ".shop.User"}
        | dict.fromkeys(("session", "section", "page", "country"), kinds.TYPE_STRING),
        "Event": dict.fromkeys(_TEXTS, kinds.TYPE_STRING) | {"at": kinds.TYPE_INT64, "data": ".shop.Data"},
    }.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            one = message.field.add(name=field, number=number, label=kinds.LABEL_OPTIONAL)
            one.type = kinds.TYPE_MESSAGE if isinstance(kind, str) else kind
            if isinstance(kind, str):
                one.type_name = kind
    pool = DescriptorPool()
    pool.Add(file)
    made = GetMessageClass(pool.FindMessageTypeByName("shop.Event"))
    # The third message of the file.
    values = [_PREFIX + b"\x02\x04" + made(**event).SerializeToString() for event in events]
    return values, ProtobufSchema(base64.b64encode(file.SerializeToString()).decode())


class Cost(NamedTuple):
    """Of a format: the bytes of an event, the processor seconds of each chunk, whether all counted right."""

    form: str
    size: float
    seconds: list[float]
    right: bool


def costs(rounds: int) -> list[Cost]:
    """Of each format, JSON first: this many chunks in turn."""
    plain, keys = make_records()
    events = [orjson.loads(value) for value in plain]
    written: dict[str, tuple[list[bytes], Schema | None]] = {
        "json": (plain, None),
        "json-schema": ([_PREFIX + value for value in plain], None),
        "avro": avro(events),
        "protobuf": protobuf(events),
    }
    one, times = streams()["single fields"], array("q", [2**45]) * CHUNK
    found = [Cost(form, sum(map(len, values)) / CHUNK, [], True) for form, (values, _) in written.items()]
    for _ in range(rounds):
        for at, (form, (values, schema)) in enumerate(written.items()):
            chunk = Chunk("raw", 0, 0, 0, range(CHUNK), times, keys, values, CHUNK, (), {7: schema})
            stream: Stream = replace(one, source=replace(one.source, format=form))  # type: ignore[arg-type]
            began = time.process_time()
            right = judge(stream, chunk) == CHUNK
            found[at].seconds.append(time.process_time() - began)
            found[at] = found[at]._replace(right=found[at].right and right)
    return found


def main() -> None:
    """Print the table."""
    for one in costs(5):
        if not one.right:
            raise SystemExit(f"{one.form} counted wrong")
        cost = statistics.median(one.seconds) / CHUNK * 1e6
        print(f"{one.form:12} {one.size:6.0f} bytes {cost:6.2f} us/event")


if __name__ == "__main__":
    main()

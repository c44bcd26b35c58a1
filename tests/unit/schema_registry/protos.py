"""Descriptors of Protobuf files for tests, made without its compiler."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf import descriptor_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

KINDS = descriptor_pb2.FieldDescriptorProto
KNOWN = (timestamp_pb2, wrappers_pb2, struct_pb2)


def message(name: str, *fields: tuple[str, int, Any], repeated: tuple[str, ...] = ()) -> Any:
    """Fields are name, number, and a type of KINDS or the name of a message or, with a $, of an enum."""
    made = descriptor_pb2.DescriptorProto(name=name)
    for field, number, kind in fields:
        label = KINDS.LABEL_REPEATED if field in repeated else KINDS.LABEL_OPTIONAL
        one = made.field.add(name=field, number=number, label=label)
        if isinstance(kind, str):
            one.type_name = kind.removeprefix("$")
            one.type = KINDS.TYPE_ENUM if kind.startswith("$") else KINDS.TYPE_MESSAGE
        else:
            one.type = kind
    return made


def mapped(name: str, key: Any, value: Any) -> Any:
    """The entry of a map."""
    made = message(name, ("key", 1, key), ("value", 2, value))
    made.options.map_entry = True
    return made


def file(name: str, *messages: Any, imports: tuple[str, ...] = (), package: str = "shop") -> Any:
    known = [one.DESCRIPTOR.name for one in KNOWN]
    made = descriptor_pb2.FileDescriptorProto(
        name=name, package=package, syntax="proto3", dependency=[*known, *imports]
    )
    made.message_type.extend(messages)
    return made


def text(one: Any) -> str:
    """As registries give it."""
    return base64.b64encode(one.SerializeToString()).decode()


def classes(*files: Any) -> Any:
    """``classes(file)("shop.Event")`` is a class of messages."""
    pool = DescriptorPool()
    for known in KNOWN:
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    for one in files:
        pool.Add(one)
    return lambda name: GetMessageClass(pool.FindMessageTypeByName(name))


def whole(value: Any) -> Any:
    """A document with all fields, which are read when they are asked for."""
    if isinstance(value, dict):
        return {name: whole(one) for name, one in value.items()}
    return [*map(whole, value)] if isinstance(value, list) else value

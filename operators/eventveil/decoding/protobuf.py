"""Protobuf messages as JSON would have them, under the names of fields in the .proto file.

Messages and maps are objects (keys of maps are texts), repeated fields arrays, enums the names of their
values, or the number of one that the schema does not name. A field that can be left out, such as one of a
oneof, is there only if it was set; any other has its default. A ``google.protobuf.Timestamp`` is an
``Instant``, a wrapper the value in it, a Struct what it stands for. Bytes stay bytes.

A field is read when it is asked for (``_Message``): as objects of Python, with the defaults of all fields, a
megabyte of empty messages inside a message would be gigabytes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

from confluent_kafka.schema_registry.common.protobuf import _init_pool
from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from eventveil.decoding.places import Instant
from eventveil.decoding.schemas import UNDECIDED, Unfit, zigzag

_WRAPPED = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_FREE = frozenset(f"google.protobuf.{kind}" for kind in ("Struct", "Value", "ListValue"))
#: More indices than messages can be nested.
_DEEPEST = 100
_FILE = "eventveil-main.proto"
_Read = Callable[[Any], Any]


class ProtobufSchema:
    """A file of messages, as a base64 FileDescriptorProto; ``imports`` are those that it imports, by name,
    each before who needs it.

    Raises Unfit for what is none.
    """

    form: str | None = "protobuf"

    def __init__(self, text: str, imports: Iterable[tuple[str, str]] = ()) -> None:
        pool = DescriptorPool()
        _init_pool(pool)
        try:
            files = [*(_file(one, name) for name, one in imports), _file(text, _FILE)]
            for one in files:
                pool.Add(one)
            # Nobody else keeps them.
            self._classes = _classes(pool, files)
        except (Unfit, *UNDECIDED):
            raise
        except Exception as error:
            raise Unfit(f"it is not a Protobuf schema ({type(error).__name__}: {error})") from None
        self._pool, self._file = pool, files[-1]
        self._messages: dict[tuple[int, ...], tuple[Any, _Read]] = {}
        self._fields: dict[str, Mapping[str, _Field]] = {}

    def read(self, body: bytes) -> Any:
        """See ``Schema.read``. The message is preceded by which of the file's it is."""
        indices, start = _indices(body)
        if indices not in self._messages:
            descriptor = self._pool.FindMessageTypeByName(self._name(indices))
            self._messages[indices] = GetMessageClass(descriptor), self._reader(descriptor)
        message, read = self._messages[indices]
        return read(message.FromString(body[start:]))

    def _name(self, indices: tuple[int, ...]) -> str:
        among, path = self._file.message_type, [self._file.package] if self._file.package else []
        for index in indices:
            if not 0 <= index < len(among):
                raise Unfit(f"it has no message {'.'.join(map(str, indices))}")
            path.append(among[index].name)
            among = among[index].nested_type
        return ".".join(path)

    def _reader(self, descriptor: Descriptor) -> _Read:
        """How to read a message."""
        name = descriptor.full_name
        if name == "google.protobuf.Timestamp":
            return lambda one: Instant(one.seconds * 1_000 + one.nanos // 1_000_000)
        if name in _WRAPPED:
            return lambda one: one.value
        if name in _FREE:
            return lambda one: json_format.MessageToDict(one)
        return lambda one: _Message(one, self._fields_of(descriptor))

    def _fields_of(self, descriptor: Descriptor) -> Mapping[str, _Field]:
        """How to read each field. Found out when a message of the type is first met, without those in it."""
        name = descriptor.full_name
        if name not in self._fields:
            self._fields[name] = {
                field.name: _Field(self._of_field(field), field.has_presence) for field in descriptor.fields
            }
        return self._fields[name]

    def _of_field(self, field: FieldDescriptor) -> _Read:
        if _is_map(field):
            value = self._of_one(field.message_type.fields_by_name["value"])
            return lambda entries: {_key(key): value(entries[key]) for key in entries}
        read = self._of_one(field)
        return (lambda several: [read(one) for one in several]) if field.is_repeated else read

    def _of_one(self, field: FieldDescriptor) -> _Read:
        if field.message_type is not None:
            return self._reader(field.message_type)
        if field.enum_type is not None:
            names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            return lambda number: names.get(number, number)
        return lambda value: value


class _Field(NamedTuple):
    """How to read a field. With ``presence`` it is there only if it was set; if not, it has a default."""

    read: _Read
    presence: bool


class _Message(dict[str, Any]):
    """The fields of a message; those that have been asked for are in the dictionary."""

    __slots__ = ("_fields", "_message")

    def __init__(self, message: Any, fields: Mapping[str, _Field]) -> None:
        super().__init__()
        self._message, self._fields = message, fields

    def __missing__(self, name: str) -> Any:
        field = self._fields[name]
        if field.presence and not self._message.HasField(name):
            raise KeyError(name)
        try:
            found = field.read(getattr(self._message, name))
        except UNDECIDED:
            raise
        except Exception:
            # A text that is not UTF-8, or a Struct with a number that JSON does not have.
            found = b""
        self[name] = found
        return found

    def items(self) -> Any:
        """Of all fields."""
        for name in self._fields:
            with suppress(KeyError):
                self[name]
        return super().items()


def is_descriptor(text: str) -> bool:
    """Whether a schema is a descriptor, as registries give it for ``format=serialized``, and not a text."""
    try:
        _file(text, _FILE)
    except Unfit:
        return False
    return True


def _classes(pool: DescriptorPool, files: Sequence[Any]) -> list[Any]:
    """The classes of all messages. Raises Unfit if their types are nested too deeply.

    protobuf makes them by recursion over types, and keeps none. In a thread of its own it gets as far for
    every caller, and in the order of the files: its own tables have another one in each process.
    """

    def make() -> list[Any]:
        # From the end on: what is imported first.
        waiting = [
            pool.FindMessageTypeByName(f"{file.package}.{one.name}".lstrip("."))
            for file in reversed(files)
            for one in file.message_type
        ]
        made = []
        while waiting:
            one = waiting.pop()
            made.append(GetMessageClass(one))
            waiting += one.nested_types
        return made

    with ThreadPoolExecutor(1) as alone:
        try:
            return alone.submit(make).result()
        except RecursionError:
            raise Unfit("its types are nested too deeply") from None


def _file(text: str, name: str) -> Any:
    found = descriptor_pb2.FileDescriptorProto()
    try:
        found.ParseFromString(base64.b64decode(text.encode("ascii"), validate=True))
    except UNDECIDED:
        raise
    except Exception:
        raise Unfit("it is not a descriptor of a Protobuf file") from None
    found.name = name
    return found


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return bool(field.is_repeated and kind is not None and kind.GetOptions().map_entry)


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _indices(body: bytes) -> tuple[tuple[int, ...], int]:
    """Which message of the file follows, a path of indices, and where. A single 0 is the first one."""
    count, at = _varint(body, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _DEEPEST:
        raise Unfit(f"it names a message by {count} indices")
    indices = []
    for _ in range(count):
        index, at = _varint(body, at)
        indices.append(index)
    return tuple(indices), at


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """A number of the prefix, and the place behind it. Raises Unfit."""
    if (found := zigzag(body, at)) is None:
        raise Unfit("it does not say which message it is")
    return found

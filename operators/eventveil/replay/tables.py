"""Events in the rows of a Parquet file or of an Arrow file or stream, read in bulk by pyarrow.

A row means what the same event means as JSON, an object with a member for each column:

| Arrow | JSON |
| --- | --- |
| string, also as dictionary | string |
| integer, decimal without fraction | integer |
| float, decimal with fraction | number with fraction; null if it is not finite |
| timestamp with zone | integer: epoch milliseconds, what is finer cut off |
| timestamp without zone, date, time | text; of these, only a timestamp is a time, if there is a time zone |
| bool, null, struct, list | true or false, null, object, array |

The object has the columns that are asked for and no others, so neither these nor their size matter.
``eventveil.decoding.rules`` judges that JSON; it is made only of rows for which the columns themselves do not
tell that they are events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, overload

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import types

from eventveil.decoding.bulk import UNSURE_TIME, Columnar, Documents, Fields, Kind, times_of
from eventveil.decoding.places import TIME_LIMIT, pointer_tokens
from eventveil.model.errors import EventveilError
from eventveil.model.fields import in_envelope
from eventveil.replay.inputs import ARROW_STREAM, PARQUET, FileInput

#: Rows of a chunk, and rows that become JSON together when one of them is asked for.
_CHUNK_ROWS = 16_384
_BLOCK_ROWS = 256
#: Bytes that a character (as \u0000) may take in JSON, and any value but text, lists and objects.
_CHARACTER, _SCALAR = 6, 100
_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


class TableInput(FileInput):
    """The rows of a file, in their order, with the columns that JSON ``pointers`` name.

    For the rest see ``FileInput``.
    """

    def __init__(self, path: str, pointers: Collection[str]) -> None:
        """Raises OSError if the file cannot be opened, EventveilError if its columns cannot be read."""
        super().__init__(path)
        self._path = path
        names = {token for pointer in pointers for token in pointer_tokens(pointer)[:1]}
        try:
            self._rows, self._batches, schema = _open(self._file, names)
        except _UNREADABLE as error:
            raise self._refused(error) from None
        self.warnings += _flattened(schema, pointers)

    def _refused(self, error: Exception) -> EventveilError:
        if isinstance(error, EventveilError):
            return EventveilError(f"{self._path}: {error}")
        return EventveilError(f"{self._path} cannot be read ({error}); write it again, or as lines of JSON")

    def _portions(self, file: BinaryIO) -> Iterator[Sequence[bytes | None]]:
        read = 0
        try:
            for batch in self._batches:
                for start in range(0, batch.num_rows, _CHUNK_ROWS):
                    portion = batch.slice(start, _CHUNK_ROWS)
                    # Lengths and texts in a damaged file could be anything.
                    portion.validate(full=True)
                    read += portion.num_rows
                    self.done = (self.total or 0) * read // self._rows if self._rows else file.tell()
                    yield _Rows(portion)
        except _UNREADABLE as error:
            raise self._refused(error) from None


_UNREADABLE = (EventveilError, pa.ArrowException, UnicodeDecodeError, OSError)


def _open(file: BinaryIO, names: Collection[str]) -> tuple[int | None, Iterator[pa.RecordBatch], pa.Schema]:
    """The number of rows, if the file tells it, the rows, of the columns with these names, and its schema."""
    magic = file.read(4)
    file.seek(0)
    if magic == PARQUET:
        parquet = pq.ParquetFile(file)
        found = _known(parquet.schema_arrow, names)
        batches = parquet.iter_batches(_CHUNK_ROWS, columns=found)
        return parquet.metadata.num_rows, (batch.select(found) for batch in batches), parquet.schema_arrow
    open_ipc = pa.ipc.open_stream if magic == ARROW_STREAM else pa.ipc.open_file
    schema = open_ipc(file).schema
    found = _known(schema, names)
    file.seek(0)
    # None of the fields would be all of them.
    fields = [schema.get_field_index(name) for name in found] or [0]
    reader = open_ipc(file, options=pa.ipc.IpcReadOptions(included_fields=fields if len(schema) else None))
    batches = reader if magic == ARROW_STREAM else map(reader.get_batch, range(reader.num_record_batches))
    return None, (batch.select(found) for batch in batches), schema


def _flattened(schema: pa.Schema, pointers: Collection[str]) -> Iterator[str]:
    """What to tell of pointers into structs in whose place there are columns such as ``page.section``."""
    for pointer in sorted(pointers):
        tokens = pointer_tokens(pointer)
        name = ".".join(tokens)
        if len(tokens) > 1 and tokens[0] not in schema.names and name in schema.names:
            meant = "/" + name.replace("~", "~0").replace("/", "~1")
            yield f"nothing is at {pointer}; did you mean the column {name}? Its pointer is {meant}"


def _known(schema: pa.Schema, names: Collection[str]) -> list[str]:
    """Those of the names that are columns. Raises EventveilError if some values are none in JSON."""
    found = [field for field in schema if field.name in names]
    _check(found, "")
    return [field.name for field in found]


def _check(fields: Collection[pa.Field], parent: str) -> None:
    for name, times in Counter(field.name for field in fields).items():
        if times > 1:
            raise EventveilError(f"column {parent}{name} occurs {times} times; column names must be unique")
    for field in fields:
        kind, place = field.type, f"{parent}{field.name}"
        while types.is_dictionary(kind) or _is_list(kind):
            kind = kind.value_type
        if types.is_struct(kind):
            _check(list(kind), f"{place}.")
        elif not any(known(kind) for known in _SCALARS):
            raise EventveilError(
                f"column {place} is of type {kind}, which JSON does not have; "
                "cast it to a string, an integer or a timestamp with zone"
            )


def _is_string(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


_SCALARS = (
    _is_string, types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null,
    types.is_timestamp, types.is_date, types.is_time,
)  # fmt: skip


def _as_json(array: pa.Array) -> list[Any]:
    """The values of an array as orjson takes them."""
    kind = array.type
    if types.is_dictionary(kind):
        return _as_json(array.dictionary_decode())
    if types.is_struct(kind):
        names = [field.name for field in kind]
        columns = [_as_json(column) for column in array.flatten()]
        valid = array.is_valid().to_pylist()
        return [
            {name: column[row] for name, column in zip(names, columns, strict=True)} if there else None
            for row, there in enumerate(valid)
        ]
    if _is_list(kind):
        return [None if one.values is None else _as_json(one.values) for one in array]
    if types.is_timestamp(kind) and kind.tz is not None:
        # Beyond 64 bits orjson itself writes no integers; read back, they are floats.
        return [
            None if one is None else orjson.Fragment(b"%d" % (one * 1000 // _PER_SECOND[kind.unit]))
            for one in array.cast(pa.int64()).to_pylist()
        ]
    if types.is_decimal(kind):
        return [None if one is None else orjson.Fragment(format(one, "f")) for one in array.to_pylist()]
    if types.is_floating(kind):
        array = array.cast(pa.float64())
    elif types.is_temporal(kind):
        array = array.cast(pa.string())
    values: list[Any] = array.to_pylist()
    return values


class _Rows(Columnar):
    """Rows, and the JSON of those that somebody asks for."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._blocks: dict[int, list[bytes]] = {}

    def __len__(self) -> int:
        rows: int = self._batch.num_rows
        return rows

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        number, row = divmod(index, _BLOCK_ROWS)
        if number not in self._blocks:
            block = self._batch.slice(number * _BLOCK_ROWS, _BLOCK_ROWS).to_struct_array()
            self._blocks[number] = [orjson.dumps(one) for one in _as_json(block)]
        return self._blocks[number][row]

    def fields(self, wanted: Mapping[str, Kind], max_bytes: int) -> Fields:
        """See ``Columnar.fields``."""
        found = {pointer: _sure(self._batch, pointer, kind) for pointer, kind in wanted.items()}
        arrays = {pointer: array for pointer, array in found.items() if array is not None}
        valid = np.full(len(self), len(arrays) == len(wanted) > 0)
        for array in arrays.values():
            valid &= array.is_valid().to_numpy(zero_copy_only=False)
        if not valid.any() or _longest(self._batch.to_struct_array()) > max_bytes:
            return Documents(np.zeros(0, np.int64), {})
        if not valid.all():
            arrays = {pointer: array.filter(pa.array(valid)) for pointer, array in arrays.items()}
        return _TableFields(np.flatnonzero(valid), arrays)


def _sure(batch: pa.RecordBatch, pointer: str, kind: Kind) -> pa.Array | None:
    """The values at a pointer, if all that are not null are of that kind; of times, as integers or texts."""
    if in_envelope(pointer) or kind not in ("string", "integer", "ms"):
        return None
    array = batch.to_struct_array()
    for token in pointer_tokens(pointer):
        at = array.type.get_field_index(token) if types.is_struct(array.type) else -1
        if at < 0:
            return None
        array = pc.struct_field(array, [at])
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if _is_string(array.type):
        return None if kind == "integer" else array
    if types.is_integer(array.type):
        return None if kind == "string" else array
    if types.is_timestamp(array.type) and array.type.tz is not None and kind == "ms":
        return array
    return None


def _longest(array: pa.Array) -> int:
    """At least the bytes of any of its values as JSON."""
    kind = array.type
    if types.is_dictionary(kind):
        return _longest(array.dictionary)
    if types.is_struct(kind):
        names = sum(_CHARACTER * len(field.name.encode()) + 4 for field in kind)
        return 2 + names + sum(map(_longest, array.flatten()))
    if _is_list(kind):
        most = pc.max(pc.list_value_length(array)).as_py() or 0
        return 2 + int(most) * (1 + _longest(array.flatten()))
    if _is_string(kind):
        return 2 + _CHARACTER * int(pc.max(pc.binary_length(array)).as_py() or 0)
    return _SCALAR + (abs(kind.scale) if types.is_decimal(kind) else 0)


class _TableFields(Fields):
    """Fields that are in arrays already, none of them null."""

    def __init__(self, rows: NDArray[np.int64], arrays: Mapping[str, pa.Array]) -> None:
        super().__init__(rows)
        self._arrays = arrays

    def column(self, pointer: str) -> list[Any]:
        """See ``Fields.column``."""
        values: list[Any] = self._arrays[pointer].to_pylist()
        return values

    def at(self, pointer: str, places: NDArray[np.int64]) -> Sequence[str | int]:
        """See ``Fields.at``."""
        array = self._arrays[pointer].take(pa.array(places))
        if types.is_timestamp(array.type):
            # Python has no times so far away as some of these.
            parts = _PER_SECOND[array.type.unit]
            return [one * 1000 // parts for one in array.cast(pa.int64()).to_pylist()]
        values: list[str | int] = array.to_pylist()
        return values

    def _read_times(self, pointer: str) -> NDArray[np.int64]:
        array = self._arrays[pointer]
        if types.is_timestamp(array.type):
            unit, times = array.type.unit, np.array(array.cast(pa.int64()))
            if unit != "s":
                return times // (_PER_SECOND[unit] // 1000)
            readable = (times > -TIME_LIMIT // 1000) & (times < TIME_LIMIT // 1000)
            return np.where(readable, times * 1000, UNSURE_TIME)
        if types.is_integer(array.type) and not types.is_uint64(array.type):
            return np.array(array, np.int64)
        return times_of(self.column(pointer))

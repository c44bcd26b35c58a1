"""The records of Kafka's record batches (format 2), read by the compiled kernel where it is installed.

The kernel walks from record to record and checks every length, that offsets ascend, and that batches have
as many records as they say. Wherever anything is unusual, damage included, nothing is read here, and
aiokafka walks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eventveil.decoding import kernel
from eventveil.decoding.bulk import Packed, packed_in
from eventveil.decoding.packing import PackedHeaders
from eventveil.model.records import Headers


class Body(NamedTuple):
    """The records of a batch, uncompressed: their number, and the offset that theirs are relative to.

    ``data`` may be anything that shows its bytes and has a length.
    """

    data: Any
    number: int
    base_offset: int


class Records(NamedTuple):
    """Records of batches, in columns; ``headers`` is empty if no record has any.

    ``deltas`` are from the first timestamp of a batch to those of its records, in ms; None if not asked for.
    """

    offsets: NDArray[np.int64]
    keys: Packed
    values: Packed
    headers: Sequence[Headers]
    deltas: NDArray[np.int64] | None


def read(bodies: Sequence[Body], *, deltas: bool = False) -> Records | None:
    """The records of consecutive batches; None if they must be read record by record."""
    if kernel.NATIVE is None:
        return None
    data = b"".join(body.data for body in bodies)
    batches = [(len(body.data), body.number, body.base_offset) for body in bodies]
    found = kernel.NATIVE.walk(data, batches, deltas)
    if found is None:
        return None
    offsets, keys, values, headers, times = found
    places = np.frombuffer(offsets, np.int64)
    told = () if headers is None else PackedHeaders(headers, np.arange(len(places)))
    after = None if times is None else np.frombuffer(times, np.int64)
    return Records(places, packed_in(data, *keys), packed_in(data, *values), told, after)

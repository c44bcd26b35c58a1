"""Tables into files: CSV by the standard library, Parquet by pyarrow."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from io import TextIOWrapper
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from eventveil.read.frames import installed
from eventveil.read.tables import Table

#: Of numbers in CSV: counts and their errors have none that say more.
_DECIMALS = 6


def write_csv(pieces: Iterable[Table], file: BinaryIO) -> None:
    """Write a table with its names in the first line; nothing where a number is not known.

    Times are RFC 3339 in UTC, truth is true and false, numbers have six decimals at most, lines end as RFC
    4180 says.
    """
    text = TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text)
    for number, piece in enumerate(pieces):
        if number == 0:
            writer.writerow(piece)
        writer.writerows(zip(*map(_words, piece.values()), strict=True))
    text.detach()


def _words(values: NDArray[Any]) -> list[Any]:
    if np.issubdtype(values.dtype, np.datetime64):
        return [f"{time}Z" for time in np.datetime_as_string(values, unit=_unit(values))]
    if values.dtype == bool:
        return ["true" if one else "false" for one in values.tolist()]
    if values.dtype == np.float64:
        return ["" if one != one else round(one, _DECIMALS) for one in values.tolist()]
    return list(values.tolist())


def _unit(values: NDArray[Any]) -> Any:
    return "ms" if (values.astype(np.int64) % 1000).any() else "s"


def write_parquet(pieces: Iterable[Table], file: BinaryIO) -> None:
    """Write a table with a row group a piece; null where a number is not known, times in UTC.

    Raises ReadingError if pyarrow is not installed.
    """
    pyarrow, parquet = installed("pyarrow", "arrow"), installed("pyarrow.parquet", "arrow")
    writer = None
    try:
        for piece in _arrow(pyarrow, pieces):
            writer = writer or parquet.ParquetWriter(file, piece.schema, compression="zstd")
            writer.write_table(piece)
    finally:
        if writer is not None:
            writer.close()


def _arrow(pyarrow: Any, pieces: Iterable[Table]) -> Iterator[Any]:
    for piece in pieces:
        yield pyarrow.table({name: _array(pyarrow, values) for name, values in piece.items()})


def _array(pyarrow: Any, values: NDArray[Any]) -> Any:
    if np.issubdtype(values.dtype, np.datetime64):
        return pyarrow.array(values.astype(np.int64), pyarrow.timestamp("ms", "UTC"))
    if values.dtype == object:
        return pyarrow.array(values.tolist(), pyarrow.string()).dictionary_encode()
    return pyarrow.array(values, from_pandas=True)


WRITERS = {"csv": write_csv, "parquet": write_parquet}

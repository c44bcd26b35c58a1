"""Long and wide tables: names and arrays of equal length, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.read.problems import ReadingError

Table = dict[str, NDArray[Any]]


def long_table(
    fixed: Table, columns: Sequence[str], cells: Mapping[str, NDArray[Any]], last: Table | None = None
) -> Table:
    """A row for each row and column: ``fixed`` and ``last`` have a value a row, ``cells`` one for each."""
    rows, width = next(iter(cells.values())).shape
    table = {name: np.repeat(values, width) for name, values in fixed.items()}
    table["column"] = np.tile(np.array(columns, object), rows)
    table |= {name: values.reshape(-1) for name, values in cells.items()}
    return table | {name: np.repeat(values, width) for name, values in (last or {}).items()}


def wide_table(fixed: Table, columns: Sequence[str], values: NDArray[Any]) -> Table:
    """A row for each row, a column for each column. Raises ReadingError if a name is taken."""
    for name in fixed:
        if name in columns:
            raise ReadingError(
                f"column {name}", "a wide table has a column of that name itself", "Take the long form"
            )
    return fixed | {column: values[:, at] for at, column in enumerate(columns)}

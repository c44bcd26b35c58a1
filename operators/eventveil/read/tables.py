"""Long and wide tables: names and arrays of equal length, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.read.problems import ReadingError

#: Before the name of a column that a wide table has itself.
PREFIX = "column:"
Table = dict[str, NDArray[Any]]


def is_wide(form: str) -> bool:
    """Whether a table is to be wide, not long. Raises ReadingError for any other form."""
    if form not in {"long", "wide"}:
        raise ReadingError("form", f"unknown form {form!r}", 'Use "long" or "wide"')
    return form == "wide"


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
    """A row for each row, a column for each column, under names that ``fixed`` has not: see ``_apart``."""
    return fixed | {_apart(column, fixed): values[:, at] for at, column in enumerate(columns)}


def _apart(column: str, fixed: Table) -> str:
    """The name of a column in a wide table: one more PREFIX if it is a fixed one after any number of them.

    So no two columns get one name, and none another when others are found later.
    """
    rest = column
    while rest.startswith(PREFIX):
        rest = rest.removeprefix(PREFIX)
    return PREFIX + column if rest in fixed else column

"""Tables as frames of pandas or polars, where these are installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.read.problems import ReadingError
from eventveil.read.tables import Table


def pandas_frame(table: Table) -> Any:
    """A pandas.DataFrame; times are in UTC. Raises ReadingError if pandas is not installed."""
    pandas = installed("pandas", "pandas")
    return pandas.DataFrame({name: _with_zone(pandas, values) for name, values in table.items()})


def _with_zone(pandas: Any, values: NDArray[Any]) -> Any:
    return pandas.Series(values).dt.tz_localize("UTC") if _is_time(values) else values


def polars_frame(table: Table) -> Any:
    """A polars.DataFrame; times are in UTC. Raises ReadingError if polars is not installed."""
    polars = installed("polars", "polars")
    frame = polars.DataFrame(
        {name: values.tolist() if values.dtype == object else values for name, values in table.items()}
    )
    times = [name for name, values in table.items() if _is_time(values)]
    return frame.with_columns(polars.col(name).dt.replace_time_zone("UTC") for name in times)


def _is_time(values: NDArray[Any]) -> bool:
    return np.issubdtype(values.dtype, np.datetime64)


def installed(module: str, extra: str) -> Any:
    """A module that an extra of Eventveil brings. Raises ReadingError if it is not there."""
    try:
        return import_module(module)
    except ImportError:
        name = module.partition(".")[0]
        raise ReadingError(
            name, "it is not installed", f"Install it, or Eventveil with its extra: eventveil[{extra}]"
        ) from None

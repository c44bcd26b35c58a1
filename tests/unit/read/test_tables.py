"""Long and wide tables, frames of pandas and polars, and estimates that are not negative."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from eventveil import read
from eventveil.read import frames
from tests.unit.read.making import releases

TWO = releases([[3, -1], [5, 0]], [[1.0, 2.0], [1.0, np.nan]], fresh=[True, False])


def test_a_long_frame_has_a_row_for_each_time_and_column() -> None:
    frame = TWO.to_pandas()
    assert list(frame) == ["time", "column", "count", "error", "low", "high", "fresh"]
    assert frame["column"].tolist() == ["c0", "c1", "c0", "c1"]
    assert frame["count"].tolist() == [3, -1, 5, 0]
    assert frame["fresh"].tolist() == [True, True, False, False]
    assert str(frame["time"].dtype) == "datetime64[ms, UTC]"
    assert frame["high"].tolist()[:2] == pytest.approx([3 + 1.96, -1 + 3.92], abs=0.01)
    assert frame["low"].isna().tolist() == [False, False, False, True]


def test_a_wide_frame_has_a_column_each() -> None:
    frame = TWO.to_pandas("wide")
    assert list(frame) == ["time", "fresh", "c0", "c1"]
    assert frame["c1"].tolist() == [-1, 0]


def test_a_form_that_is_none_is_refused() -> None:
    sums = TWO.totals("all")
    for made in (TWO.to_pandas, TWO.to_polars, sums.to_pandas, sums.to_polars):
        with pytest.raises(read.ReadingError, match=r"unknown form 'broad'. Use \"long\" or \"wide\""):
            made("broad")


def test_counts_made_non_negative_are_not_added_up() -> None:
    adjusted = TWO.non_negative().select(["c0"]).between("2026-03-01")
    for add in (adjusted.totals, adjusted.averages):
        with pytest.raises(read.ReadingError, match=r"biased \(upwards in small columns\)"):
            add("all")
    assert len(adjusted.to_pandas()) == 2


def test_a_frame_of_polars_has_the_same() -> None:
    pandas, polars = TWO.to_pandas(), TWO.to_polars()
    assert polars.columns == list(pandas)
    assert polars["count"].to_list() == pandas["count"].tolist()
    assert polars["column"].to_list() == pandas["column"].tolist()
    assert [one.isoformat() for one in polars["time"]] == [one.isoformat() for one in pandas["time"]]


def test_a_frame_of_sums_says_what_they_are() -> None:
    averages = TWO.averages("all")
    assert list(averages.to_pandas()) == [
        "time", "end", "column", "average", "error", "low", "high", "timestamps", "complete",
        "without_partition",
    ]  # fmt: skip
    assert list(TWO.totals("all").to_pandas("wide"))[-2:] == ["c0", "c1"]
    assert averages.to_polars()["average"].to_list() == [4, -0.5]


def test_a_library_that_is_not_there_is_told_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(read.ReadingError, match=r"not installed.*eventveil\[polars\]"):
        TWO.to_polars()
    with pytest.raises(read.ReadingError, match=r"eventveil\[arrow\]"):
        frames.installed("no_such_module", "arrow")


def test_a_wide_frame_does_not_overwrite_a_column_of_the_same_name() -> None:
    found = releases([[1, 2, 3, 4, 5]], 1.0)
    object.__setattr__(found, "columns", ("time", "column:time", "end", "column:x", "fresh"))
    wide = found.to_pandas("wide")
    assert list(wide) == [
        "time",
        "fresh",
        "column:time",
        "column:column:time",
        "end",
        "column:x",
        "column:fresh",
    ]
    assert wide.iloc[0, 2:].tolist() == [1, 2, 3, 4, 5]
    assert found.to_pandas()["column"].tolist() == [*found.columns]
    sums = found.totals("all").to_polars("wide")
    assert [one for one in sums.columns if "column:" in one] == [
        "column:time", "column:column:time", "column:end", "column:x",
    ]  # fmt: skip


def test_a_selection_has_its_columns_in_the_order_asked_for() -> None:
    found = TWO.select(["c1", "c0"])
    assert found.counts.tolist() == [[-1, 3], [0, 5]]
    with pytest.raises(read.ReadingError, match="no column c9"):
        TWO.select(["c9"])


def test_pieces_make_up_the_whole_table() -> None:
    whole = TWO.to_pandas()
    pieces = [*TWO.pieces(rows=2)]
    assert len(pieces) == 2
    assert [one for piece in pieces for one in piece["count"]] == whole["count"].tolist()


def test_non_negative_counts_keep_the_sum_of_each_release() -> None:
    draw = np.random.default_rng(5)
    counts = draw.integers(-30, 60, (50, 20))
    found = releases(counts, 1.0).non_negative().counts
    assert found.min() >= 0
    assert np.allclose(found.sum(axis=1), np.maximum(counts.sum(axis=1), 0))


def test_non_negative_counts_are_the_nearest_ones() -> None:
    found = releases([[5, -1, 2], [1, -3, 1], [4, 2, 0]], 1.0).non_negative().counts
    assert found.tolist() == [[4.5, 0, 1.5], [0, 0, 0], [4, 2, 0]]
    optimum, draw = np.array([4.5, 0, 1.5]), np.random.default_rng(1)
    others = draw.dirichlet(np.ones(3), 1000) * 6
    distances = ((others - [5, -1, 2]) ** 2).sum(axis=1)
    assert distances.min() >= ((optimum - [5, -1, 2]) ** 2).sum()


def test_importing_eventveil_loads_nothing_and_read_loads_no_client_and_no_frames() -> None:
    script = (
        "import sys, eventveil; assert 'numpy' not in sys.modules; eventveil.read.file; "
        "heavy = {'confluent_kafka', 'pandas', 'polars', 'pyarrow', 'faust'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_arrays_are_shown_in_a_line_that_says_what_they_are() -> None:
    when = "from 2026-03-01T00:00:00.000Z to 2026-03-01T02:00:00.000Z"
    assert repr(TWO) == f"<2 releases of views {when}: c0, c1>"
    assert repr(TWO.totals("1h")) == f"<2 totals of views {when}: c0, c1>"
    wide = releases(np.zeros((1, 9)), 1.0)
    assert repr(wide).endswith(": c0, c1, c2, c3, c4 and 4 more>")

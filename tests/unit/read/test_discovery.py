"""Releases whose columns are found in between: aligned in time, with NaN where there was no such column."""

from __future__ import annotations

import numpy as np
import pytest

from eventveil import read
from eventveil.live.page import page
from eventveil.live.recent import Recent
from eventveil.read.following import assembled
from eventveil.read.problems import ReadingError
from eventveil.read.status import status_of
from tests.unit.read.making import record, written
from tests.unit.support import topology
from tests.unit.tasks.test_discovery import finding

COST = {"epsilon": "0.1", "delta": "1/1000000000"}


def made(timestamp, *names, **fields):
    counts = {name: 10 * timestamp + at for at, name in enumerate(names)}
    return record(timestamp, counts=counts, discovery=COST, **fields)


RUN = [made(1, "other"), made(2, "other"), made(3, "other", "a"), made(4, "other", "a", "b")]


@pytest.mark.parametrize("order", [1, -1])
def test_columns_are_those_of_the_newest_and_nan_before_they_were_found(tmp_path, order):
    found = read.file(written(tmp_path, RUN[::order]))
    assert found.columns == ("other", "a", "b")
    nan = np.nan
    expected = [[10, nan, nan], [20, nan, nan], [30, 31, nan], [40, 41, 42]]
    assert np.array_equal(found.counts, expected, equal_nan=True)
    assert np.array_equal(np.isnan(found.errors), np.isnan(expected))
    low, high = found.bounds()
    assert np.array_equal(np.isnan(low), np.isnan(expected))
    assert np.array_equal(np.isnan(high), np.isnan(expected))


def test_columns_that_never_grew_stay_whole_numbers(tmp_path):
    found = read.file(written(tmp_path, RUN[:2]))
    assert (found.columns, found.counts.dtype) == (("other",), np.int64)


def test_sums_over_time_before_a_column_was_found_are_not_known(tmp_path):
    found = read.file(written(tmp_path, RUN))
    sums = found.totals("2h")
    assert np.array_equal(sums.values[:, 0], [30, 70])
    assert np.array_equal(np.isnan(sums.values), [[False, True, True], [False, False, True]])


def test_counts_are_made_non_negative_with_the_columns_of_their_time(tmp_path):
    rows = [record(1, counts={"other": -3}, discovery=COST)]
    rows += [record(2, counts={"other": 9, "a": -2}, discovery=COST)]
    found = read.file(written(tmp_path, rows)).non_negative()
    assert np.array_equal(found.counts, [[0, np.nan], [7, 0]], equal_nan=True)


def test_tables_have_all_columns(tmp_path):
    (table,) = read.file(written(tmp_path, RUN)).pieces("wide")
    assert [*table] == ["time", "fresh", "other", "a", "b"]
    assert np.isnan(table["b"][:3]).all()


FORGOTTEN = [*RUN, made(5, "other", "b"), made(6, "other", "b", "a")]


@pytest.mark.parametrize("order", [1, -1])
def test_columns_that_were_forgotten_are_nan_where_they_were_not_released(tmp_path, order):
    found = read.file(written(tmp_path, FORGOTTEN[::order]))
    nan = np.nan
    assert found.columns == ("other", "a", "b")
    assert np.array_equal(found.counts[4:], [[50, nan, 51], [60, 62, 61]], equal_nan=True)
    assert np.array_equal(np.isnan(found.errors), np.isnan(found.counts))
    assert np.array_equal(found.non_negative().counts, found.counts, equal_nan=True)


def test_errors_by_name_are_those_of_their_columns(tmp_path):
    rows = [made(1, "other", "a", "b", error={"other": 1.0, "a": 2.0, "b": 3.0})]
    rows.append(made(2, "other", "b", "a", error={"other": 1.5, "b": 3.5, "a": 2.5}))
    assert read.file(written(tmp_path, rows)).errors.tolist() == [[1.0, 2.0, 3.0], [1.5, 2.5, 3.5]]


def test_the_page_of_a_worker_shows_forgotten_columns_by_their_names():
    one = finding(name="views")
    recent = Recent(one)
    for at, value in enumerate(FORGOTTEN[:5]):
        recent.take(value, f"offset {at}")
    text = page(topology(one), {"views": recent.seen()}, "", (), {}, 0)
    assert all(f"<b>{name}</b>" in text for name in ("other", "a", "b"))
    last = text[text.index("<h3>Timestamp 5") :]
    assert last.index(">51<") < last.index("</table>")
    assert ">41<" not in last[: last.index("</table>")]


@pytest.mark.parametrize("other", [("b",), ("a", "other")])
def test_columns_that_do_not_begin_with_that_of_all_others_are_refused(tmp_path, other):
    with pytest.raises(ReadingError, match="other columns"):
        read.file(written(tmp_path, [*RUN, made(5, *other)]))


def test_listed_columns_never_grow(tmp_path):
    rows = [record(1, counts={"a": 1}), record(2, counts={"a": 1, "b": 2})]
    with pytest.raises(ReadingError, match="other columns"):
        read.file(written(tmp_path, rows))


def test_a_release_that_is_followed_has_the_columns_of_its_time():
    found = assembled(finding(name="views"), RUN[3], "here")
    assert found is not None
    assert found.columns == ("other", "a", "b")


def test_the_page_of_a_worker_shows_columns_from_when_they_were_found():
    one = finding(name="views")
    recent = Recent(one)
    for at, value in enumerate(RUN):
        recent.take(value, f"offset {at}")
    seen = recent.seen()
    assert not seen.unread
    text = page(topology(one), {"views": seen}, "", (), {}, 0)
    assert "not released" in text
    assert all(f"<b>{name}</b>" in text for name in ("other", "a", "b"))


def test_status_reads_such_releases():
    one = finding(name="views")
    status = status_of(one, dict(enumerate(RUN, 1)), 0)
    assert (status.last, status.delta) == (4, 1e-9)


def test_status_adds_what_every_window_pays_for_finding_columns():
    one = finding(name="views")
    last = record(9, epsilon="0.9", units=8, window_spent=4, counts={"other": 1}, discovery=COST)
    status = status_of(one, {9: last}, 0)
    assert (status.epsilon, status.spent) == (1.0, pytest.approx(0.55))
    assert status.promise == "1 at delta 1e-09"
    assert status.fields()["remaining"] == pytest.approx(0.45)
    recent = Recent(one)
    recent.take(last, "here")
    text = page(topology(one), {"views": recent.seen()}, "", (), {}, 0)
    assert "0.55 of 1<" in text
    assert "of epsilon at delta 1e-09 spent in the window" in text
    before = status_of(one, {}, 0)
    assert (before.epsilon, before.delta) == (float(one.epsilon), float(one.counts.discover.delta))

"""Releases of several levels that add up, such as sections and the pages of each.

Each level is a stream of its own, of the same events. Noise makes a section differ from the sum of its pages.

**What is done.** From the finest level up, the count of a column and the sum of its columns one level below
are averaged with the weights of their precisions. From the coarsest level down, what is missing between a
column and that sum is divided among the summands, each in proportion to its covariance with their sum. If
errors are as they are stated, that is the linear unbiased estimate of the least variance: Hay, Rastogi,
Miklau and Suciu (PVLDB 2010), Section 4, for errors that differ and correlate as in Wickramasuriya,
Athanasopoulos and Hyndman (JASA 2019). What the sum errs by is that of ``totals``; the columns of a group are
taken to correlate alike, by as much as explains it. Where nothing was negative, nothing becomes so: see
``eventveil.read.estimates``. It is computed from releases alone, so it costs no budget.

**The rest.** A level that has columns without a parent, such as ``other`` of one whose columns are found in
the data, may lack columns. Then a parent has a rest, which is not negative: a column of its own. So that no
event counts twice, ``other`` becomes that of the level above, or goes where that has none. The rests of a
level are columns of the next one too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eventveil.read import estimates
from eventveil.read.problems import ReadingError
from eventveil.read.releases import Releases

Floats = NDArray[np.float64]
Parent = Callable[[str], str | None]
_LEAST = 1e-12
"""Variances below it count as it."""


class _Family(NamedTuple):
    """A column of one level by its place, and those of its columns in the next; ``open``: it has a rest."""

    parent: int
    places: list[int]
    open: bool


class _FamilySum(NamedTuple):
    """The sum of the columns of a family and its expected deviation, float64 (T,); NaN: not known."""

    values: Floats
    errors: Floats


def consistent(*levels: Releases, parent: Parent | None = None, rest: str = "other") -> tuple[Releases, ...]:
    """Levels from the coarsest to the finest, whose counts add up: float64.

    At the timestamps that all of them have, counted with the same partitions.

    ``parent``: from a column to the name of the one it is part of, one level up; None: of none, and the
    column is left as it is. By default that is what is before the last ``|``, or the level's only column.
    ``rest``: the column of events that are in no other. If it has no parent, the one of the level above takes
    its place, or it is left out, since its events are in the rests. Each of these is called by the name of
    its column, ``|`` and this.

    ``errors`` are those of the new counts, NaN where nothing is known; ``scales`` are as released. Sums over
    several columns have smaller errors than ``totals`` reports: read them from a coarser level.

    Raises ReadingError: fewer than two levels, of other intervals, or without a time in common; releases that
    are sums over several timestamps, or whose noise cancels between timestamps; no column of a level is
    part of one of the level above; ``parent`` names a column that does not exist.
    """
    if len(levels) < 2:
        raise ReadingError("levels", f"found {len(levels)}", "Give two or more, the coarsest first")
    aligned = _aligned(levels)
    families = [_families(coarse, fine, parent) for coarse, fine in pairwise(aligned)]
    merged, sums = [aligned[-1]], []
    for coarse, own in zip(aligned[-2::-1], families[::-1], strict=True):
        sums.append(_sums(merged[-1], own))
        merged.append(_merged(coarse, own, sums[-1]))
    divided, found = merged[-1], [merged[-1]]
    for fine, own, total in zip(merged[-2::-1], families, sums[::-1], strict=True):
        above, divided = divided, _divided(divided, fine, own, total)
        whole = _with_rest(above, divided, own, total, rest)
        found.append(_with_what_is_above(found[-1], above, whole, own, rest))
    return tuple(found)


def _aligned(levels: Sequence[Releases]) -> list[Releases]:
    """At the times that all have, counts as float64."""
    for one in levels:
        if one.interval != levels[0].interval:
            raise ReadingError(
                one.stream,
                f"its timestamps are {one.interval} ms long, those of {levels[0].stream}"
                f" {levels[0].interval}",
                "Levels need timestamps of one length",
            )
        for part in one.parts:
            if part.span > 1 or part.blocks is not None:
                raise ReadingError(
                    one.stream,
                    f"releases of {part.mechanism} are sums over timestamps, or their noise cancels there",
                    "Use another kind: levels are made to add up timestamp by timestamp",
                )
    common = reduce(np.intersect1d, [one.starts for one in levels])
    if not len(common):
        raise ReadingError("levels", "they have no timestamp in common", "Read them over the same time")
    some = [one._rows(np.isin(one.starts, common)) for one in levels]
    alike = np.array([len({*missing}) == 1 for missing in zip(*(one.missing for one in some), strict=True)])
    return [_plain(one._rows(alike)) for one in some]


def _plain(one: Releases) -> Releases:
    """With counts of floats, and without what holds only of counts as they were released."""
    return replace(
        one,
        counts=one.counts.astype(np.float64),
        parts=tuple(part._replace(rollups=()) for part in one.parts),
        history=(),
    )


def _families(coarse: Releases, fine: Releases, parent: Parent | None) -> list[_Family]:
    known = {column: at for at, column in enumerate(coarse.columns)}
    places: dict[int, list[int]] = {}
    for at, column in enumerate(fine.columns):
        name = parent(column) if parent is not None else _before_the_last_bar(column, coarse.columns)
        if name in known:
            places.setdefault(known[name], []).append(at)
        elif name is not None and parent is not None:
            raise ReadingError(coarse.stream, f"it has no column {name}, of which {column} is part", _NAMES)
    if not places:
        raise ReadingError(fine.stream, f"none of its columns is part of one of {coarse.stream}", _NAMES)
    lacking = sum(map(len, places.values())) < len(fine.columns)
    return [_Family(at, some, lacking) for at, some in sorted(places.items())]


_NAMES = "Give `parent`, from a column to the name of its column one level up, or None"


def _before_the_last_bar(column: str, above: Sequence[str]) -> str | None:
    return above[0] if len(above) == 1 else column.rpartition("|")[0] or None


def _sums(fine: Releases, families: Sequence[_Family]) -> list[_FamilySum]:
    absent = np.isnan(fine.counts)
    present = replace(
        fine, counts=np.where(absent, 0.0, fine.counts), errors=np.where(absent, 0.0, fine.errors)
    )
    groups = {str(one.parent): [fine.columns[at] for at in one.places] for one in families}
    totals = present.totals(groups=groups)
    return [_FamilySum(totals.values[:, at], totals.errors[:, at]) for at in range(len(families))]


def _merged(coarse: Releases, families: Sequence[_Family], sums: Sequence[_FamilySum]) -> Releases:
    """Each count and the sum below it, averaged; where there is a rest, only if that would be negative."""
    counts, errors = coarse.counts.copy(), coarse.errors.copy()
    for one, total in zip(families, sums, strict=True):
        own, below = _precision(errors[:, one.parent]), _precision(total.errors)
        both = own + below
        weight = np.divide(own, both, out=np.zeros_like(own), where=both > 0)
        mean = weight * counts[:, one.parent] + (1 - weight) * total.values
        deviation = np.sqrt(np.divide(1.0, both, out=np.full_like(both, np.nan), where=both > 0))
        takes = ~np.isnan(counts[:, one.parent])
        if one.open:
            takes &= total.values > counts[:, one.parent]
        counts[takes, one.parent], errors[takes, one.parent] = mean[takes], deviation[takes]
    return replace(coarse, counts=counts, errors=errors)


def _precision(errors: Floats) -> Floats:
    return np.where(np.isnan(errors), 0.0, 1 / np.maximum(np.nan_to_num(errors) ** 2, _LEAST))


def _gap(above: Releases, family: _Family, total: _FamilySum) -> Floats:
    """What a column has more than the sum below it; 0 where it was not released."""
    return np.nan_to_num(above.counts[:, family.parent] - total.values)


def _divided(
    above: Releases, fine: Releases, families: Sequence[_Family], sums: Sequence[_FamilySum]
) -> Releases:
    counts, errors = fine.counts.copy(), fine.errors.copy()
    for one, total in zip(families, sums, strict=True):
        gap = _gap(above, one, total)
        if one.open:
            gap = np.minimum(gap, 0.0)
        some = fine.counts[:, one.places]
        part = _parts(fine.errors[:, one.places], total.errors, ~np.isnan(some))
        moved = gap != 0
        counts[:, one.places] = _not_negative(some, some + part * gap[:, np.newaxis])
        parent, below = above.errors[:, one.parent] ** 2, total.errors**2
        variance = errors[:, one.places] ** 2 + part**2 * (parent - below)[:, np.newaxis]
        errors[np.ix_(moved, one.places)] = np.sqrt(np.maximum(variance[moved], 0.0))
    return replace(fine, counts=counts, errors=errors)


def _parts(errors: Floats, of_sum: Floats, present: NDArray[np.bool_]) -> Floats:
    """Which part of a gap each column of a family takes, (T, n), together 1: its covariance with the sum.

    Columns without a known error take all of it, alike.
    """
    unknown = np.isnan(errors) & present
    known = np.where(unknown.any(axis=1, keepdims=True), unknown, np.where(present, errors, 0.0))
    own, together = (known**2).sum(axis=1), known.sum(axis=1) ** 2
    between = np.nan_to_num(of_sum) ** 2 - own
    rho = np.divide(between, together - own, out=np.zeros_like(own), where=together > own)
    rho = rho.clip(0.0, 1.0)[:, np.newaxis]
    covariance = (1 - rho) * known**2 + rho * known * known.sum(axis=1, keepdims=True)
    covariance = np.where(covariance.sum(axis=1, keepdims=True) > 0, covariance, present)
    found: Floats = covariance / np.maximum(covariance.sum(axis=1, keepdims=True), _LEAST)
    return found


def _not_negative(before: NDArray[Any], now: Floats) -> Floats:
    """``now``, with the same sums, and not negative where nothing was before."""
    for row in np.flatnonzero((now < 0).any(axis=1) & ~(before < 0).any(axis=1)):
        some = ~np.isnan(now[row])
        if now[row, some].sum() >= 0:
            now[row, some] = estimates.non_negative(now[row : row + 1, some])[0]
    return now


def _with_rest(
    above: Releases, fine: Releases, families: Sequence[_Family], sums: Sequence[_FamilySum], rest: str
) -> Releases:
    lacking = [(one, total) for one, total in zip(families, sums, strict=True) if one.open]
    names = tuple(f"{above.columns[one.parent]}|{rest}" for one, _ in lacking)
    if not lacking:
        return fine
    gone = np.isnan(np.stack([above.counts[:, one.parent] for one, _ in lacking], axis=1))
    counts = np.stack([np.maximum(_gap(above, *one), 0.0) for one in lacking], axis=1)
    errors = np.stack([np.hypot(above.errors[:, one.parent], total.errors) for one, total in lacking], axis=1)
    return _joined(fine, names, np.where(gone, np.nan, counts), np.where(gone, np.nan, errors), rest)


def _with_what_is_above(
    whole: Releases, above: Releases, fine: Releases, families: Sequence[_Family], rest: str
) -> Releases:
    """With the columns of the level above that are not divided, in place of ``rest`` if that has no parent.

    ``whole``: that level with its rests, which come in any case; ``above``: without them.
    """
    divided = {above.columns[one.parent] for one in families}
    parts = {fine.columns[at] for one in families for at in one.places}
    goes = {rest} & {*fine.columns} - parts
    comes = {*whole.columns} - (divided if goes else {*above.columns})
    own = fine.select([name for name in fine.columns if name not in goes]) if goes else fine
    taken = whole.select([name for name in whole.columns if name in comes])
    names = [f"{name}|{rest}" if name != rest and name in above.columns else name for name in taken.columns]
    return _joined(own, names, taken.counts, taken.errors, rest)


def _joined(one: Releases, names: Sequence[str], counts: NDArray[Any], errors: Floats, rest: str) -> Releases:
    """With further columns, of these names. ReadingError if one is there already."""
    if twice := {*one.columns}.intersection(names):
        raise ReadingError(
            one.stream, f"it has a column {min(twice)}", f"Give `rest` another name than {rest}"
        )
    return replace(
        one,
        columns=(*one.columns, *names),
        counts=np.hstack([one.counts.astype(np.float64), counts.astype(np.float64)]),
        errors=np.hstack([one.errors, errors]),
    )

"""`make utility`: the command works on a small scale, and the published tables are those of the results."""

from __future__ import annotations

import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from benchmarks.utility import gaussian, intervals, streams, tables
from benchmarks.utility.__main__ import HOME, PARTS, main
from benchmarks.utility.claims import CLAIMS, Claim
from benchmarks.utility.measuring import AheadNoise, Case, Results, window_sums
from benchmarks.utility.side_by_side import DRAWN_PART, REAL_PART
from eventveil.privacy.noise import SeededNoise

DOCS = HOME / "docs"
RESULTS = HOME / "benchmarks" / "results" / "utility.json"


@pytest.mark.slow
def test_a_quick_run_measures_every_part_and_writes_results_plots_and_tables(tmp_path: Path) -> None:
    shutil.copy(DOCS / "utility.md", tmp_path)
    shutil.copytree(DOCS / "utility", tmp_path / "utility")
    place = ["--results", str(tmp_path), "--docs", str(tmp_path)]
    main(["--quick", "--seeds", "1", "--parts", *PARTS, *place])
    results = Results(tmp_path / "utility.json")
    for part in (*tables.REFERENCES, REAL_PART, DRAWN_PART, gaussian.PART, intervals.PART):
        cases = results.of(part)
        assert cases, part
        assert all(np.isfinite(errors).all() for case in cases for errors in case.errors.values()), part
    for picture in (*tables.REFERENCES, "kinds"):
        assert (tmp_path / f"{picture}.png").stat().st_size > 5_000, picture
    for written, published in zip(tables.documents(tmp_path), tables.documents(DOCS), strict=True):
        assert written.read_text() != published.read_text()
        assert written.read_text() == tables.filled(published.read_text(), results)


def test_the_published_tables_are_made_from_the_published_results() -> None:
    texts = [document.read_text() for document in tables.documents(DOCS)]
    for text in texts:
        assert text == tables.filled(text, Results(RESULTS))
        assert text.count("<!-- table: ") == text.count("<!-- end of table -->") > 0
    assert "".join(texts).count("<!-- table: ") > len(PARTS)


def test_every_claim_was_measured() -> None:
    results = Results(RESULTS)
    for claim in CLAIMS:
        assert claim.ratios(results), claim.text


def test_the_streams_are_always_the_same() -> None:
    names = [make().name for make in streams.COUNT_STREAMS]
    totals = [int(make().counts.sum()) for make in streams.COUNT_STREAMS]
    assert dict(zip(names, totals, strict=True)) == {
        "flights hourly": 333_926,
        "flights 3-hourly": 333_336,
        "slow drift": 12_874_441,
        "bursts": 2_990_552,
        "mixed": 72_275_249,
    }


def test_noise_drawn_ahead_is_that_of_the_seeded_source_in_larger_pieces() -> None:
    ahead, source, scale = AheadNoise(7), SeededNoise(7), Fraction(5, 2)
    first = source.discrete_laplace(scale, 3)
    larger = source.discrete_laplace(scale, 6)
    assert ahead.discrete_laplace(scale, 3).tolist() == first.tolist()
    assert ahead.discrete_laplace(scale, 3).tolist() == larger[:3].tolist()
    assert ahead.discrete_laplace(scale, 3).tolist() == larger[3:].tolist()


def test_gaussian_noise_drawn_ahead_is_that_of_the_seeded_source_too() -> None:
    ahead, source, sigma = AheadNoise(7), SeededNoise(7), Fraction(5, 2)
    first, larger = (source.rounded_normal(sigma, size) for size in (3, 6))
    assert ahead.rounded_normal(sigma, 3).tolist() == first.tolist()
    assert ahead.rounded_normal(sigma, 3).tolist() == larger[:3].tolist()
    # Laplace noise of the same scale is other noise.
    assert ahead.discrete_laplace(sigma, 3).tolist() == source.discrete_laplace(sigma, 3).tolist()
    assert ahead.rounded_normal(sigma, 3).tolist() == larger[3:].tolist()


def test_gaussian_noise_is_compared_with_the_same_kind_and_the_best_with_the_best(tmp_path: Path) -> None:
    results = Results(tmp_path / "utility.json")
    for stream, mean, factor in (("many", 5.0, 0.5), ("few", 4.9, 2.0)):
        pure = {"uniform": 9.0, "sample": 2.0, "seasonal": 1.0}
        errors = {name: [error] for name, error in pure.items()}
        errors |= {f"{name}, gaussian": [factor * error] for name, error in pure.items()}
        errors["sample, gaussian"] = [0.2]
        results.put(Case("gaussian", stream, "1", {"window": 24}, errors, sizes={"mean": mean}))
    rows = [line.split(" | ") for line in gaussian.over_pure(results).splitlines()[2:]]
    assert [row[1:3] for row in rows] == [
        ["uniform", "0.50"], ["sample", "0.10"], ["seasonal", "0.50"], ["best", "0.20"],
        ["uniform", "2.00"], ["sample", "0.10"], ["seasonal", "2.00"], ["best", "0.20"],
    ]  # fmt: skip
    assert [row[0] for row in rows[3:5]] == ["| dense, 5 events a cell or more", "| sparse"]
    assert gaussian.table("seasonal", results).splitlines()[2:] == [
        "| many (5) | 0.50 (50%) |",
        "| few (4.9) | 2.00 (200%) |",
    ]
    with pytest.raises(ValueError, match="nothing was measured"):
        gaussian.table("over pure", Results(tmp_path / "none.json"))


def test_window_sums_are_those_of_the_last_timestamps() -> None:
    counts = np.arange(10).reshape(5, 2)
    sums = [counts[max(0, end - 3) : end].sum(axis=0).tolist() for end in range(1, 6)]
    assert window_sums(counts, 3).tolist() == sums


def test_a_claim_holds_only_in_the_cases_in_which_the_error_is_smaller() -> None:
    claim = Claim("part", "source", "text", "new", "old")
    assert claim.verdict([0.5, 0.9]) == "yes"
    assert claim.verdict([0.5, 1.1]) == "in 1 of 2"
    assert claim.verdict([1.2, 1.1]) == "no"


def test_measuring_a_case_again_replaces_it(tmp_path: Path) -> None:
    results = Results(tmp_path / "utility.json")
    for error in (1.0, 2.0):
        results.put(Case("values", "stream", "1", {"held": 3}, {"ToPS": [error], "Zero": [4.0]}))
    (case,) = Results(tmp_path / "utility.json").of("values")
    assert case.ratios("Zero", "ToPS") == [2.0]


def test_a_table_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        tables.filled("<!-- table: values -->\n<!-- end of table -->", Results(tmp_path / "none.json"))


def test_every_mechanism_page_shows_its_picture() -> None:
    pages = sorted(page for page in (HOME / "docs" / "mechanisms").glob("*.md") if page.stem != "README")
    pictures = {path.stem: path for path in (HOME / "docs" / "mechanisms" / "pictures").iterdir()}
    assert [page.stem for page in pages] == sorted(pictures)
    for page in pages:
        assert f"(pictures/{page.stem}.png)" in page.read_text(), page
        assert 5_000 < pictures[page.stem].stat().st_size < 60_000, page

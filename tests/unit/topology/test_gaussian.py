"""Gaussian noise in a topology: what it comes to, what its fingerprint says, and what goes with it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from eventveil.kinds.registry import kind_of
from eventveil.mechanisms.uniform import Uniform
from eventveil.topology.fingerprints import fingerprint_fields
from tests.unit.topology.examples import changed, load_text, problems_of

GAUSSIAN = ("kind: budget-absorption", "noise: gaussian\n      delta: 1e-9\n      kind: uniform")
AS_AVRO = ("topic: flights.sanitized", "topic: flights.sanitized\n      format: avro")
REGISTRY = ("9092\n", "9092\nregistry: {url: 'https://r:8081'}\n")


def test_noise_and_delta_are_settings_of_the_mechanism_and_in_the_fingerprint(tmp_path: Path) -> None:
    (stream,) = load_text(tmp_path, changed(GAUSSIAN)).streams
    assert stream.mechanism.delta == Fraction(1, 10**9)
    fields = fingerprint_fields(stream, 12, 4)
    assert (fields["mechanism.noise"], fields["mechanism.delta"]) == ("gaussian", "1/1000000000")


def test_laplace_noise_leaves_no_trace_whether_it_is_written_or_not(tmp_path: Path) -> None:
    one, other = (
        load_text(tmp_path, changed(("kind: budget-absorption", f"{more}kind: uniform"))).streams[0]
        for more in ("", "noise: laplace\n      ")
    )
    assert one.mechanism.delta is None
    assert fingerprint_fields(one, 12, 4) == fingerprint_fields(other, 12, 4)
    assert not {"mechanism.noise", "mechanism.delta"} & fingerprint_fields(one, 12, 4).keys()


def test_check_says_what_delta_means_and_what_noise_there_is(tmp_path: Path) -> None:
    topology = load_text(tmp_path, changed((GAUSSIAN[0], GAUSSIAN[1].replace("1e-9", "1e-6"))))
    said = list(kind_of(topology.streams[0]).describe(topology, topology.streams[0]))
    assert "Epsilon 1.0 with delta 1e-06 for any 120 consecutive timestamps" in said[0]
    assert "by a factor of at most e^1, about 2.72, plus delta" in said[0]
    assert "with the same delta epsilon is 1.455 for n = 2, 3.525 for n = 10" in said[0]
    text = " ".join(said)
    assert "Noise of a fresh count: Gaussian, standard deviation 46.279, within +-91 95 % of" in text
    assert "It should be far below 1/n for n users." in text
    assert "Of a million users the promise may fail for 1: delta 1e-9 costs 1.30 times the noise." in text


def test_check_says_that_visits_add_up_to_more_where_noise_hangs_together(tmp_path: Path) -> None:
    totals = "noise: gaussian\n      delta: 1e-6\n      kind: totals\n      blocks: [2, 4]"
    no_budget = ("budget: {epsilon: 5, span: 5d}\n", "")
    text = changed((GAUSSIAN[0], totals), ("      window: 120\n", ""), no_budget)
    topology = load_text(tmp_path, text)
    said = list(kind_of(topology.streams[0]).describe(topology, topology.streams[0]))
    assert "For a user who is present at n timestamps, mu is up to n times as large, its square up" in said[0]
    assert "its square up to n^2 times, because their noise is correlated" in said[0]
    assert "has a standard deviation of at most 5.98" in " ".join(said)


def test_releases_with_such_noise_can_be_avro(tmp_path: Path) -> None:
    (stream,) = load_text(tmp_path, changed(GAUSSIAN, AS_AVRO, REGISTRY)).streams
    assert (stream.sink.format, stream.mechanism.delta) == ("avro", Fraction(1, 10**9))


TWO = ("[ATL, BOS]", "[ATL, BOS, JFK, LAX]\n      contributions: 3")
OF_EACH = (TWO[0], TWO[1] + "\n      per_column: 2")


def test_check_says_what_bounds_a_user_in_a_column_and_what_noise_that_needs(tmp_path: Path) -> None:
    said = {}
    for change in (TWO, OF_EACH):
        topology = load_text(tmp_path, changed(GAUSSIAN, change))
        said[change] = " ".join(kind_of(topology.streams[0]).describe(topology, topology.streams[0]))
    assert "the first 3 events of a user count." in said[TWO]
    assert "of a user the first 2 of each column are left, and of these the first 3 count." in said[OF_EACH]
    assert "all 3 events of a user may be in one column" in said[TWO]
    assert (
        "at most 2 of the 3 events of a user are in one column, so Gaussian noise of a count is in"
        in (said[OF_EACH])
    )
    assert "in proportion to 2.236, the root of their squares added up, and not to 3." in said[OF_EACH]
    # The root of 2^2 + 1^2 over 3.
    scales = [float(text.partition("standard deviation ")[2].partition(",")[0]) for text in said.values()]
    assert scales[1] / scales[0] == pytest.approx(5**0.5 / 3, abs=1e-5)


def test_a_column_that_may_have_all_of_a_user_leaves_no_trace(tmp_path: Path) -> None:
    (one,) = load_text(tmp_path, changed(TWO)).streams
    (other,) = load_text(tmp_path, changed((TWO[0], TWO[1] + "\n      per_column: 3"))).streams
    assert one == other
    assert "counts.per_column" not in fingerprint_fields(one, 12, 4)
    (bounded,) = load_text(tmp_path, changed(OF_EACH)).streams
    assert fingerprint_fields(bounded, 12, 4)["counts.per_column"] == 2


def test_the_bound_of_a_column_does_not_go_with_a_trusted_producer(tmp_path: Path) -> None:
    trusted = ("[ATL, BOS]", "[ATL, BOS]\n      contributions: trusted\n      per_column: 1")
    pan = ("window: 120", "window: 120\n      pan_private: single\n      adjacency: substitute")
    (problem,) = problems_of(tmp_path, changed(trusted, pan))
    assert "counts.per_column: contributions: trusted bounds nothing here" in problem.message


def test_a_plugin_that_may_draw_for_sums_is_refused_with_the_place_of_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Uniform, "columns_apart", False)
    (problem,) = problems_of(tmp_path, changed(GAUSSIAN, OF_EACH))
    assert str(problem).startswith(f"{tmp_path}/topology.yaml:19:19: ")
    assert "counts.per_column: uniform may draw Gaussian noise for sums over columns" in problem.message
    topology = load_text(tmp_path, changed(OF_EACH))
    said = " ".join(kind_of(topology.streams[0]).describe(topology, topology.streams[0]))
    assert "but Laplace noise scales with all 3; Gaussian noise would scale with 2.236." in said

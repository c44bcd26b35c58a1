"""Gaussian noise in a topology: what it comes to, what its fingerprint says, and what goes with it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from eventveil.kinds.registry import kind_of
from eventveil.topology.fingerprints import fingerprint_fields
from tests.unit.topology.examples import changed, load_text

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
    assert "It should be far below one in the number of users." in text
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

"""What producers are asked for, and the public grid of reports."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from eventveil.local import Control, Hybrid, SquareWave
from eventveil.local.control import LARGEST, STEPS, purpose, reports, thresholds
from eventveil.mechanisms.local_estimator import worst_variance
from tests.unit.local.streams import EPSILON, LABELS, MAXIMUM, SeededRandomness, asked, send


@pytest.mark.parametrize("threshold", [None, 1, 13, MAXIMUM])
def test_a_record_says_all_that_a_producer_needs(threshold: int | None) -> None:
    control = asked(threshold)
    read = Control.read(control.encode(), EPSILON)
    assert read == control
    assert read.encode() == control.encode()
    mechanism = read.mechanism
    if threshold is None:
        assert isinstance(mechanism, SquareWave)
        assert mechanism.maximum == MAXIMUM
    else:
        assert isinstance(mechanism, Hybrid)
        assert mechanism.threshold == threshold
    assert mechanism.epsilon == EPSILON


def altered(**changes: Any) -> bytes:
    fields = {**json.loads(asked(13).encode()), **changes}
    return json.dumps({name: value for name, value in fields.items() if value != "gone"}).encode()


@pytest.mark.parametrize(
    "record",
    [
        *(b"", b"{oops", b"[]", b"null", b"\xff"),
        *(altered(version=2), altered(phase="distribution"), altered(phase="gone"), altered(more=1)),
        *(altered(threshold=value) for value in (0, -1, 13.0, "13", True, MAXIMUM + 1, "gone", None)),
        *(altered(maximum=value) for value in (0, LARGEST + 1, "40", "gone")),
        *(altered(stream=3), altered(epsilon=2), altered(epsilon="gone")),
    ],
)
def test_any_other_record_is_refused(record: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Control.read(record, EPSILON)


@pytest.mark.parametrize("wanted", ["3", "1", "16"])
def test_a_record_with_another_epsilon_than_the_producers_is_refused(wanted: str) -> None:
    with pytest.raises(ValueError, match="nothing may be sent to it"):
        Control.read(altered(epsilon=wanted), EPSILON)


def test_every_report_has_a_column_of_its_own_and_every_column_a_report() -> None:
    assert len(set(LABELS)) == len(LABELS)
    values = [*range(-1, MAXIMUM + 2)] * 20
    assert set(send(values)) <= set(LABELS)
    for threshold in thresholds(MAXIMUM):
        own = {label for label in LABELS if label.startswith(f"{purpose(EPSILON, MAXIMUM, threshold)}/")}
        sent = set(send(values, threshold))
        assert sent <= own
        assert len(own) == asked(threshold).mechanism.wave.outputs + 2
    assert f"{purpose(EPSILON, MAXIMUM, 17)}/0" not in LABELS


def test_streams_of_another_epsilon_or_maximum_share_no_report() -> None:
    for epsilon, maximum in ((EPSILON / 2, MAXIMUM), (EPSILON, MAXIMUM + 1), (EPSILON / MAXIMUM, MAXIMUM)):
        assert not {*reports(epsilon, maximum)} & {*LABELS}


def test_a_report_is_the_number_that_its_mechanism_made() -> None:
    assert asked(13).report(7, SeededRandomness(3)) == (
        f"{purpose(EPSILON, MAXIMUM, 13)}/{Hybrid(EPSILON, 13, STEPS).report(7, SeededRandomness(3))}"
    )
    assert asked().report(7, SeededRandomness(3)) == (
        f"{purpose(EPSILON, MAXIMUM, None)}/{SquareWave(EPSILON, MAXIMUM).report(7, SeededRandomness(3))}"
    )


@pytest.mark.parametrize("maximum", [1, 2, 15, 16, 17, 480, 65_537, LARGEST])
def test_thresholds_are_few_and_at_most_an_eighth_apart(maximum: int) -> None:
    found = thresholds(maximum)
    assert list(found) == sorted(set(found))
    assert found[0] == 1
    assert found[-1] == maximum
    assert all(b <= a + 1 or 8 * b <= 9 * a for a, b in pairwise(found))
    assert len(found) <= 150


def test_a_stream_is_never_wider_than_a_timestamp_can_be_counted() -> None:
    assert sum(1 for _ in reports(Fraction(1, 1000), LARGEST)) < 50_000


@pytest.mark.parametrize("maximum", [0, -1, LARGEST + 1, 1.0, True])
def test_a_maximum_that_no_report_can_have_is_refused(maximum: Any) -> None:
    with pytest.raises(ValueError, match="largest value"):
        list(reports(EPSILON, maximum))


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(1), Fraction(4), Fraction(16)])
def test_the_coarser_grid_adds_next_to_nothing_to_the_variance(epsilon: Fraction) -> None:
    """At most (threshold / STEPS / 2)^2, beside the worst of Equation 22 for values in 0..threshold."""
    assert worst_variance(epsilon) / 4 > 7 * (1 / STEPS / 2) ** 2

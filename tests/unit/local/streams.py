"""A stream of local reports with round numbers, and what its producers send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.local import Control
from eventveil.local.control import COLUMNS, reports
from eventveil.model.topology import Stream
from tests.unit.support import stream

EPSILON, MAXIMUM, AFTER = Fraction(2), 40, 300


class SeededRandomness:
    """Random numbers that a test can repeat."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def below(self, bound: int) -> int:
        return int.from_bytes(self._generator.bytes(16)) % bound


LABELS = tuple(reports(EPSILON, MAXIMUM))
_INDEX = {label: index for index, label in enumerate(LABELS)}


def local_stream(name: str = "visits", *, after: int = AFTER, **changes: Any) -> Stream:
    return stream(
        name,
        **{
            "labels": LABELS,
            "released": COLUMNS,
            "kind": "topl",
            "epsilon": EPSILON,
            "epsilon_text": "2",
            "window": 1,
            "options": {"maximum": MAXIMUM, "estimate_after": after, "range": 1000},
            **changes,
        },
    )


def asked(threshold: int | None = None) -> Control:
    return Control("visits", EPSILON, MAXIMUM, threshold)


def send(values: Iterable[int], threshold: int | None = None, seed: int = 1) -> list[str]:
    """The reports of producers who were asked for those of a threshold."""
    randomness = SeededRandomness(seed)
    return [asked(threshold).report(value, randomness) for value in values]


def sparse_counts(sent: Iterable[str]) -> dict[int, int]:
    """The counts of a timestamp with these reports, by column."""
    return {_INDEX[label]: count for label, count in Counter(sent).items()}


def counts_of(sent: Iterable[str]) -> NDArray[np.int64]:
    counts = np.zeros(len(LABELS), np.int64)
    for column, count in sparse_counts(sent).items():
        counts[column] = count
    return counts

"""What every part of the benchmark shares: cases with errors by seed, the file of them, and noise."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eventveil.privacy.noise import SeededNoise

DIGITS = 5  # significant digits of errors in the file
MOST_AHEAD = 2**16


@dataclass(frozen=True)
class Scope:
    """How much is measured: seeds 0, 1, ... and whether it is only tried out on the beginnings of streams.

    ``only``: contenders side by side that are measured, if not all of them; ``streams`` the same of streams.
    """

    seeds: int
    quick: bool = False
    only: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """The errors of several contenders on one stream with the same epsilon and other terms.

    ``errors`` by contender: one for each seed, in the unit that the part says; what needs no seed has one.
    ``medians`` are other things worth telling: by contender the median over its seeds.
    ``sizes``: what the stream is like, such as its mean count.
    """

    part: str
    stream: str
    epsilon: str
    terms: dict[str, int]
    errors: dict[str, list[float]]
    medians: dict[str, dict[str, float]] = field(default_factory=dict)
    sizes: dict[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[object, ...]:
        """What makes it this case and no other."""
        return (self.part, self.stream, self.epsilon, *sorted(self.terms.items()))

    @property
    def title(self) -> str:
        """Its stream and its terms, for people."""
        terms = [f"{name} {number}" for name, number in self.terms.items()]
        return ", ".join([self.stream, f"epsilon {self.epsilon}", *terms])

    def ratios(self, label: str, reference: str) -> list[float]:
        """Errors over those of the reference, seed by seed."""
        own, other = self.errors[label], self.errors[reference]
        size = min(len(errors) for errors in (own, other) if len(errors) > 1 or len(own) == len(other) == 1)
        return [own[min(i, len(own) - 1)] / other[min(i, len(other) - 1)] for i in range(size)]

    def best(self, labels: Iterable[str]) -> str:
        """The one of the labels with the least mean error."""
        return min(labels, key=lambda label: float(np.mean(self.errors[label])))


class Results:
    """The cases of a file, in order of their parts; measuring a case again replaces it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        cases = json.loads(path.read_text())["cases"] if path.exists() else []
        self._cases = {case.key: case for case in (Case(**fields) for fields in cases)}

    def renew(self, case: Case) -> None:
        """Write the file with the contenders of this case instead of what it has of them; keep the others."""
        old = self._cases.get(case.key, case)
        errors, medians = {**old.errors, **case.errors}, {**old.medians, **case.medians}
        self.put(replace(case, errors=errors, medians=medians))

    def put(self, case: Case) -> None:
        """Write the file with this case."""
        errors = {label: [_rounded(error) for error in errors] for label, errors in case.errors.items()}
        self._cases[case.key] = Case(
            case.part, case.stream, case.epsilon, case.terms, errors, dict(case.medians), dict(case.sizes)
        )
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(asdict(each)) for each in self._cases.values()]
        self._path.write_text('{"cases": [\n' + ",\n".join(lines) + "\n]}\n")

    def of(self, part: str) -> list[Case]:
        """The cases of a part, in the order in which they were first measured."""
        return [case for case in self._cases.values() if case.part == part]


class AheadNoise:
    """The noise of ``SeededNoise``, drawn in larger pieces where the same scale is asked for again.

    Draws are independent, so a piece of a larger draw has the same distribution: only fewer calls are made.
    """

    def __init__(self, seed: int) -> None:
        self._source = SeededNoise(seed)
        self._pieces: dict[tuple[str, int, int], tuple[NDArray[np.int64], int]] = {}

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """See ``NoiseSource``."""
        return self._ahead("laplace", self._source.discrete_laplace, scale, size)

    def rounded_normal(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        """See ``NormalSource``."""
        return self._ahead("normal", self._source.rounded_normal, sigma, size)

    def _ahead(
        self, name: str, draw: Callable[[Fraction, int], NDArray[np.int64]], scale: Fraction, size: int
    ) -> NDArray[np.int64]:
        key = (name, scale.numerator, scale.denominator)
        drawn, used = self._pieces.get(key, (np.empty(0, np.int64), 0))
        if used + size > len(drawn):
            wanted = max(size, min(2 * len(drawn), MOST_AHEAD))
            drawn, used = draw(scale, wanted), 0
        self._pieces[key] = drawn, used + size
        return drawn[used : used + size]

    def binomial(self, trials: NDArray[np.int64], rate: Fraction) -> NDArray[np.int64]:
        """See ``eventveil.mechanisms.sampling.Thinner``."""
        return self._source.binomial(trials, rate)


def window_sums(counts: NDArray[np.int64], span: int) -> NDArray[np.int64]:
    """At each timestamp the sum over the last ``span`` ones, fewer in the beginning."""
    sums = np.cumsum(counts, axis=0)
    sums[span:] -= sums[:-span].copy()
    return sums


def epsilons(*texts: str) -> Iterator[tuple[str, Fraction]]:
    """Each as written and as a number."""
    return ((text, Fraction(text)) for text in texts)


def _rounded(error: float) -> float:
    return float(f"{error:.{DIGITS}g}")

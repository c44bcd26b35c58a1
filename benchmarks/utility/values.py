"""Mean squared error of range sums over streams of values: ToPS, its parts, PAK, local reports.

200 random ranges within the released values, both ends uniform. Parts: *values* compares complete mechanisms;
*hierarchy* fixes the threshold at the 95 % quantile and cuts the truth there, so that only noise and guesses
make errors; *local* compares Square Wave with and without the prune.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from benchmarks.utility.measuring import Case, Scope
from benchmarks.utility.streams import ValueStream as Stream
from benchmarks.utility.streams import air_time, cut, heavy_tail
from eventveil.local import Hybrid, SquareWave
from eventveil.mechanisms.local_estimator import distribution, pruned, threshold
from eventveil.privacy.noise import SeededNoise
from eventveil.values.pak import Pak, PakSettings
from eventveil.values.stream import ValueStream
from eventveil.values.tops import Tops, TopsSettings

QUERIES = 200
WHOLE, HIERARCHY, LOCAL = "values", "hierarchy", "local"
TOPS, ZEROS = "ToPS", "Zero"
PLAIN, PRUNED = "Square Wave", "Square Wave with the prune"
DELTA_POWER = 2  # PAK's delta is n^-2


def queries(length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts and ends (exclusive) of random ranges."""
    ends = np.sort(np.random.default_rng(200).integers(0, length, (QUERIES, 2)), axis=1)
    return ends[:, 0], ends[:, 1] + 1


def error(readings: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """Mean squared error of the ranges."""
    difference = np.concatenate([[0.0], np.cumsum((readings - truth).astype(float))])
    starts, ends = queries(len(truth))
    return float(((difference[ends] - difference[starts]) ** 2).mean())


Maker = Callable[[Stream, Fraction, int], ValueStream]


def tops(**changes: object) -> Maker:
    """ToPS with some settings changed."""

    def make(stream: Stream, epsilon: Fraction, seed: int) -> ValueStream:
        thresholds = [stream.maximum] if stream.fixed else None
        settings = TopsSettings(epsilon, stream.maximum, stream.held, stream.chunk, thresholds=thresholds)
        return Tops(replace(settings, **changes), SeededNoise(seed))  # type: ignore[arg-type]

    return make


def pak(clamp: bool, **changes: object) -> Maker:
    """PAK, with and without the clamp of its threshold."""

    def make(stream: Stream, epsilon: Fraction, seed: int) -> ValueStream:
        delta = Fraction(1, len(stream.values) ** DELTA_POWER)
        settings = PakSettings(epsilon, delta, stream.maximum, stream.held, stream.chunk, clamp=clamp)
        return Pak(replace(settings, **changes), SeededNoise(seed))  # type: ignore[arg-type]

    return make


class _TopsTreeUnderPakThreshold(Tops):
    """PAK's threshold, clamped, above the hierarchy and smoother of ToPS."""

    def __init__(self, stream: Stream, epsilon: Fraction, seed: int) -> None:
        super().__init__(TopsSettings(epsilon, stream.maximum, stream.held, stream.chunk), SeededNoise(seed))
        self._pak = pak(True)(stream, epsilon, seed)

    def _estimate(self, held: NDArray[np.int64]) -> int:
        return self._pak._estimate(held)


CONTENDERS: dict[str, Maker] = {
    TOPS: tops(),
    "threshold by one-sided noise": tops(maximum_by="exponential"),
    "smoother: mean": tops(smoother="mean"),
    "smoother: median": tops(smoother="median"),
    "smoother: moving average": tops(smoother="moving-average"),
    "smoother: exponential": tops(smoother="exponential"),
    "no smoother (s = 0), fan-out 16, consistent": tops(smoothed=0),
    "no smoother, fan-out 16": tops(smoothed=0, consistent=False),
    "no smoother, fan-out 2: PAK's tree": tops(smoothed=0, consistent=False, fanout=2),
    "PAK's threshold with the clamp, ToPS's tree": _TopsTreeUnderPakThreshold,
    "PAK with the clamp": pak(True),
    "PAK without the clamp": pak(False),
}


HIERARCHIES = (TOPS, *(label for label in CONTENDERS if "smoother" in label))


def run(maker: Maker, stream: Stream, epsilon: Fraction, seed: int) -> tuple[float, int]:
    """Error and threshold of one run."""
    mechanism = maker(stream, epsilon, seed)
    readings = mechanism.step(stream.values).values[stream.held :]
    assert mechanism.threshold is not None
    return error(readings, stream.released), mechanism.threshold


def compare(part: str, stream: Stream, epsilon: str, seeds: Sequence[int], labels: Sequence[str]) -> Case:
    """Errors and median thresholds of the contenders on a stream."""
    runs = {
        label: [run(CONTENDERS[label], stream, Fraction(epsilon), seed) for seed in seeds] for label in labels
    }
    errors = {ZEROS: [error(0 * stream.released, stream.released)]}
    errors |= {label: [each[0] for each in own] for label, own in runs.items()}
    medians = {label: float(np.median([each[1] for each in own])) for label, own in runs.items()}
    terms = {"held": stream.held, "released": len(stream.released)}
    return Case(part, stream.name, epsilon, terms, errors, {} if stream.fixed else {"threshold": medians})


class SeededRandomness:
    """Predictable randomness for producers: benchmarks and tests only."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def below(self, bound: int) -> int:
        """See ``Randomness``."""
        words = -(-bound.bit_length() // 32) + 1  # 32 spare bits: the bias is below 2^-32
        drawn = self._generator.integers(0, 2**32, words)
        return sum(int(word) << 32 * i for i, word in enumerate(drawn)) % bound


def local(stream: Stream, epsilon: Fraction, seed: int) -> dict[str, tuple[float, int]]:
    """ToPL: errors and thresholds with Square Wave as it is (SW) and with the prune (SW-W)."""
    randomness = SeededRandomness(seed)
    wave = SquareWave(epsilon, stream.maximum)
    reports = [wave.report(int(value), randomness) for value in stream.values[: stream.held]]
    density = distribution(wave, np.bincount(reports, minlength=wave.wave.outputs))
    outcome = {}
    for label, shares in ((PLAIN, density), (PRUNED, pruned(density))):
        theta = threshold(shares, stream.maximum, epsilon, len(stream.released))
        hybrid = Hybrid(epsilon, theta)
        estimates = np.array([float(hybrid.estimate(report)) for report in range(hybrid.reports)])
        sent = np.array([hybrid.report(int(value), randomness) for value in stream.released])
        outcome[label] = (error(np.rint(estimates[sent]).astype(np.int64), stream.released), theta)
    return outcome


def compare_local(stream: Stream, epsilon: str, seeds: Sequence[int]) -> Case:
    """Errors and median thresholds with and without the prune."""
    runs = [local(stream, Fraction(epsilon), seed) for seed in seeds]
    errors = {ZEROS: [error(0 * stream.released, stream.released)]}
    errors |= {label: [each[label][0] for each in runs] for label in runs[0]}
    medians = {label: float(np.median([each[label][1] for each in runs])) for label in runs[0]}
    terms = {"held": stream.held, "released": len(stream.released)}
    return Case(LOCAL, stream.name, epsilon, terms, errors, {"threshold": medians})


def measure(scope: Scope) -> Iterator[Case]:
    """Complete mechanisms at two epsilons, hierarchies at one."""
    for stream in _streams(scope, 2**20):
        for epsilon in ("0.05",) if scope.quick else ("0.05", "1"):
            yield compare(WHOLE, stream, epsilon, range(scope.seeds), tuple(CONTENDERS))
        yield compare(HIERARCHY, cut(stream), "0.05", range(scope.seeds), HIERARCHIES)


def measure_local(scope: Scope) -> Iterator[Case]:
    """Local reports at one epsilon."""
    for stream in _streams(scope, 2**17):
        yield compare_local(stream, "1", range(scope.seeds))


def _streams(scope: Scope, released: int) -> tuple[Stream, Stream]:
    """The two streams; ``released`` values of the heavy tail."""
    if scope.quick:
        flown = air_time()
        return replace(flown, values=flown.values[: 2**12], held=2**11, chunk=2**11), heavy_tail(2**11, 2**11)
    return air_time(), heavy_tail(released)

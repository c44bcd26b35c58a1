"""What a sum over a span errs by at event level: its root mean squared error, exactly, epsilon 1.

Once with Laplace noise, for pure epsilon, and once with Gaussian noise, for a delta of ``DELTA``.

No stream is needed: releases are counts and noise that does not depend on them. The mean square is over all
places at which a span can begin, in the timestamps of ``PLACES``; days and weeks begin where blocks do. What
needs a horizon is given one of ``HORIZON`` timestamps, which favours it: the others have none.

Every node of a tree has discrete Laplace noise of scale levels / epsilon, or rounded normal noise of standard
deviation root(levels) / mu. *Binary*, *16-ary*: the running total is the sum of the fewest nodes. *Honaker*:
of the binary tree, each node estimated with all that is below it. *With subtraction*: digits of the running
total may be negative (Andersson, Pagh, Steiner, Torkamani, 2024). *Smooth binary*: leaves of as many ones as
zeros alone (Andersson, Pagh, NeurIPS 2023). *Square root*: the factorization of Fichtenberger, Henzinger,
Upadhyay (ICML 2023), whose L1 sensitivity Laplace noise has to pay for, and Gaussian noise the one in L2.
*Fading*: its coefficients times 0.999^j, whose sensitivity is bounded without a horizon. *Without horizon*:
times those of (ln(1 / (1 - x)) / x)^-0.75, after B. Jacobsen and K. Fawaz, "Private Continual Counting of
Unbounded Streams" (2025).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from math import comb

import numpy as np
from numpy.typing import NDArray

from benchmarks.utility.measuring import Case, Scope
from eventveil.mechanisms.movement import noise_variance
from eventveil.mechanisms.nested import fanouts_of, powers
from eventveil.mechanisms.nested_gaussian import planned
from eventveil.mechanisms.totals import DEFAULT_BLOCKS
from eventveil.privacy.gaussian import mu_squared

PART, GAUSSIAN_PART = "totals", "totals-gaussian"
DELTA = Fraction(1, 10**6)
HORIZON = 2048
PLACES = 1008
SPANS = (1, 24, 168, 1000)
WHOLE = {"a day": 24, "a week": 168, "six weeks": 1008}
BASELINE = "time-unit"
Floats = NDArray[np.float64]
Nodes = dict[tuple[int, int], int]
Errors = Callable[[int, int], float]
"""The variance of the sum over timestamps first..end-1, from 0 on."""
Draw = Callable[[float, float], float]
"""The variance of a draw where one user moves draws by this much in L1, and in L2 squared."""


def laplace(sensitivity: float, _: float) -> float:
    """Of discrete Laplace noise for epsilon 1."""
    return noise_variance(sensitivity)


def gaussian(_: float, squared: float) -> float:
    """Of rounded normal noise for epsilon 1 and DELTA."""
    return squared / float(mu_squared(Fraction(1), DELTA)) + 1 / 12


def measure(scope: Scope) -> Iterator[Case]:
    """A case for each span, and for whole days and weeks, with Laplace noise."""
    yield from _measure(scope, PART, {name: make(laplace) for name, make in CONTENDERS.items()})


def measure_gaussian(scope: Scope) -> Iterator[Case]:
    """The same with Gaussian noise, and two with Laplace noise to compare with."""
    pure = {f"{name}, pure": CONTENDERS[name](laplace) for name in ("time-unit", "totals, blocks [24, 168]")}
    made = {name: make(gaussian) for name, make in (CONTENDERS | GAUSSIAN_CONTENDERS).items()}
    yield from _measure(scope, GAUSSIAN_PART, made | pure)


def _measure(scope: Scope, part: str, contenders: dict[str, Errors]) -> Iterator[Case]:
    step = 24 if scope.quick else 1
    for span in SPANS:
        firsts = range(0, PLACES, step)
        name = f"{span} timestamp{'s' * (span > 1)}"
        yield _case(part, name, [(one, one + span) for one in firsts], contenders)
    for name, length in WHOLE.items():
        firsts = range(0, PLACES, length)
        yield _case(part, name, [(one, one + length) for one in firsts], contenders)


def _case(part: str, name: str, runs: list[tuple[int, int]], contenders: dict[str, Errors]) -> Case:
    errors = {
        label: [float(f"{np.sqrt(np.mean([variance(*run) for run in runs])):.5g}")]
        for label, variance in contenders.items()
    }
    return Case(part, name, "1", {}, errors)


def _time_unit(draw: Draw) -> Errors:
    return lambda first, end: (end - first) * draw(1.0, 1.0)


def _totals(*blocks: int) -> Callable[[Draw], Errors]:
    def variance(of_draw: float, first: int, end: int) -> float:
        longest, total = blocks[-1], 0.0
        while first < end:
            stop = min(end, (first // longest + 1) * longest)
            weights = np.zeros(longest)
            weights[first % longest : first % longest + stop - first] = 1.0
            total += powers(weights, fanouts_of((1, *blocks))).variance(of_draw)
            first = stop
        return total

    # Of Gaussian noise what the mechanism has, which is less than a draw of its own for each level.
    return lambda draw: partial(variance, draw(len(blocks) + 1.0, float(1 / planned((1, *blocks)).draw)))


def _of_nodes(nodes: Callable[[int], Nodes], levels: int, draw: Draw) -> Errors:
    """Running totals of these nodes, each (level, number) with its sign; a span is a difference of two."""
    known = [nodes(at) for at in range(HORIZON + 1)]

    def variance(first: int, end: int) -> float:
        here, there = known[first], known[end]
        squares = sum((there.get(one, 0) - here.get(one, 0)) ** 2 for one in here.keys() | there.keys())
        return squares * draw(float(levels), float(levels))

    return variance


def _digits(fanout: int, is_signed: bool) -> Callable[[Draw], Errors]:
    def nodes(at: int) -> Nodes:
        found: Nodes = {}
        level = 0
        while at:
            at, digit = divmod(at, fanout)
            if is_signed and digit > fanout // 2:
                at, digit = at + 1, digit - fanout
            sign = 1 if digit > 0 else -1
            first = at * fanout + min(digit, 0)
            found |= {(level, first + i): sign for i in range(abs(digit))}
            level += 1
        return found

    def make(draw: Draw) -> Errors:
        levels = max(level for at in range(1, HORIZON + 1) for level, _ in nodes(at)) + 1
        return _of_nodes(nodes, levels, draw)

    return make


def _smooth(draw: Draw) -> Errors:
    height = next(height for height in range(2, 40, 2) if comb(height, height // 2) > HORIZON)
    leaves = [leaf for leaf in range(2**height) if leaf.bit_count() == height // 2][: HORIZON + 1]

    def nodes(at: int) -> Nodes:
        leaf = leaves[at]
        return {(level, (leaf >> level) - 1): 1 for level in range(height) if leaf >> level & 1}

    return _of_nodes(nodes, height, draw)


def _honaker(draw: Draw) -> Errors:
    levels = HORIZON.bit_length() - 1
    width = 2 * HORIZON
    estimates = np.zeros((HORIZON, width), np.float32)
    estimates[:, :HORIZON] = np.eye(HORIZON, dtype=np.float32)
    totals = np.zeros((HORIZON + 1, width), np.float32)
    own, used = HORIZON, 1.0
    for level in range(levels):
        length = 2**level
        for at in range(HORIZON + 1):
            if at >> level & 1:
                totals[at] += estimates[(at >> (level + 1)) * 2]
        below = estimates.reshape(-1, 2, width).sum(axis=1)
        weight = 2 * used / (2 * used + 1)  # of the node itself, the other part is its children's
        estimates = ((1 - weight) * below).astype(np.float32)
        estimates[np.arange(len(estimates)), own + np.arange(len(estimates))] += np.float32(weight)
        used, own = weight, own + HORIZON // (2 * length)
    of_draw = draw(float(levels), float(levels))
    return lambda first, end: float(np.square(totals[end] - totals[first]).sum()) * of_draw


def _square_root(draw: Draw) -> Errors:
    return _toeplitz(_ROOT, draw)


def _toeplitz(factor: Floats, draw: Draw) -> Errors:
    """Running totals by A = B C, C lower triangular with these coefficients, B = A C^-1."""
    inverse = np.zeros(len(factor))
    inverse[0] = 1 / factor[0]
    for at in range(1, len(factor)):
        inverse[at] = -(factor[1 : at + 1] @ inverse[:at][::-1]) / factor[0]
    other, of_draw = np.cumsum(inverse), draw(float(factor.sum()), float((factor**2).sum()))

    def variance(first: int, end: int) -> float:
        there, here = other[:end][::-1], np.zeros(end)
        here[:first] = other[:first][::-1]
        return float(np.square(there - here).sum()) * of_draw

    return variance


def _without_horizon(draw: Draw) -> Errors:
    """Coefficients fall like j^-1/2 (ln j)^-3/4 / root(pi), so that those beyond the horizon count too."""
    factor = np.convolve(_ROOT, _power(1 / np.arange(1.0, HORIZON + 1), -0.75))[:HORIZON]
    beyond = 2 / (np.pi * np.sqrt(np.log(HORIZON)))
    return _toeplitz(factor, lambda l1, squared: draw(l1, squared + beyond))


def _power(series: Floats, exponent: float) -> Floats:
    """The coefficients of a power of a series that begins with 1."""
    power = np.zeros(len(series))
    power[0] = 1.0
    for n in range(1, len(series)):
        k = np.arange(1, n + 1)
        power[n] = ((exponent * k - (n - k)) * series[1 : n + 1] * power[:n][::-1]).sum() / n
    return power


_ROOT: Floats = np.cumprod(np.append(1.0, 1 - 1 / (2 * np.arange(1, HORIZON))))
CONTENDERS: dict[str, Callable[[Draw], Errors]] = {
    BASELINE: _time_unit,
    "totals, blocks [24, 168]": _totals(24, 168),
    "totals, blocks [24]": _totals(24),
    "totals, blocks [12, 144]": _totals(*DEFAULT_BLOCKS),
    "binary": _digits(2, is_signed=False),
    "binary, Honaker": _honaker,
    "16-ary": _digits(16, is_signed=False),
    "19-ary with subtraction": _digits(19, is_signed=True),
    "5-ary with subtraction": _digits(5, is_signed=True),
    "smooth binary": _smooth,
    "square root": _square_root,
}
GAUSSIAN_CONTENDERS: dict[str, Callable[[Draw], Errors]] = {
    "totals, blocks [4, 24, 168]": _totals(4, 24, 168),
    "square root, fading": lambda draw: _toeplitz(_ROOT * 0.999 ** np.arange(HORIZON), draw),
    "square root, without horizon": _without_horizon,
}

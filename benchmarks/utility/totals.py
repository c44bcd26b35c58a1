"""What a sum over a span errs by at event level: its root mean squared error, exactly, epsilon 1.

No stream is needed: releases are counts and noise that does not depend on them. The mean square is over all
places at which a span can begin, in the timestamps of ``PLACES``; days and weeks begin where blocks do. What
needs a horizon is given one of ``HORIZON`` timestamps, which favours it: the others have none.

Every node of a tree has discrete Laplace noise of scale levels / epsilon. *Binary*, *16-ary*: the running
total is the sum of the fewest nodes. *Honaker*: of the binary tree, each node estimated with all that is
below it. *With subtraction*: digits of the running total may be negative (Andersson, Pagh, Steiner,
Torkamani, 2024). *Smooth binary*: leaves of as many ones as zeros alone (Andersson, Pagh, NeurIPS 2023).
*Square root*: the factorization of Fichtenberger, Henzinger, Upadhyay (ICML 2023), whose L1 sensitivity
Laplace noise has to pay for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import comb

import numpy as np
from numpy.typing import NDArray

from benchmarks.utility.measuring import Case, Scope
from eventveil.mechanisms.movement import noise_variance
from eventveil.mechanisms.nested import fanouts_of, powers
from eventveil.mechanisms.totals import DEFAULT_BLOCKS

PART = "totals"
HORIZON = 2048
PLACES = 1008
SPANS = (1, 24, 168, 1000)
WHOLE = {"a day": 24, "a week": 168, "six weeks": 1008}
BASELINE = "time-unit"
Nodes = dict[tuple[int, int], int]
Errors = Callable[[int, int], float]
"""The variance of the sum over timestamps first..end-1, from 0 on."""


def measure(scope: Scope) -> Iterator[Case]:
    """A case for each span, and for whole days and weeks."""
    contenders = {name: make() for name, make in CONTENDERS.items()}
    step = 24 if scope.quick else 1
    for span in SPANS:
        firsts = range(0, PLACES, step)
        yield _case(f"{span} timestamp{'s' * (span > 1)}", [(one, one + span) for one in firsts], contenders)
    for name, length in WHOLE.items():
        firsts = range(0, PLACES, length)
        yield _case(name, [(one, one + length) for one in firsts], contenders)


def _case(name: str, runs: list[tuple[int, int]], contenders: dict[str, Errors]) -> Case:
    errors = {
        label: [float(f"{np.sqrt(np.mean([variance(*run) for run in runs])):.5g}")]
        for label, variance in contenders.items()
    }
    return Case(PART, name, "1", {}, errors)


def _time_unit() -> Errors:
    return lambda first, end: (end - first) * noise_variance(1.0)


def _totals(*blocks: int) -> Callable[[], Errors]:
    def variance(first: int, end: int) -> float:
        longest, total = blocks[-1], 0.0
        while first < end:
            stop = min(end, (first // longest + 1) * longest)
            weights = np.zeros(longest)
            weights[first % longest : first % longest + stop - first] = 1.0
            total += powers(weights, fanouts_of((1, *blocks))).variance(noise_variance(len(blocks) + 1.0))
            first = stop
        return total

    return lambda: variance


def _of_nodes(nodes: Callable[[int], Nodes], levels: int) -> Errors:
    """Running totals of these nodes, each (level, number) with its sign; a span is a difference of two."""
    known = [nodes(at) for at in range(HORIZON + 1)]

    def variance(first: int, end: int) -> float:
        here, there = known[first], known[end]
        squares = sum((there.get(one, 0) - here.get(one, 0)) ** 2 for one in here.keys() | there.keys())
        return squares * noise_variance(float(levels))

    return variance


def _digits(fanout: int, is_signed: bool) -> Callable[[], Errors]:
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

    def make() -> Errors:
        levels = max(level for at in range(1, HORIZON + 1) for level, _ in nodes(at)) + 1
        return _of_nodes(nodes, levels)

    return make


def _smooth() -> Errors:
    height = next(height for height in range(2, 40, 2) if comb(height, height // 2) > HORIZON)
    leaves = [leaf for leaf in range(2**height) if leaf.bit_count() == height // 2][: HORIZON + 1]

    def nodes(at: int) -> Nodes:
        leaf = leaves[at]
        return {(level, (leaf >> level) - 1): 1 for level in range(height) if leaf >> level & 1}

    return _of_nodes(nodes, height)


def _honaker() -> Errors:
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
    draw = noise_variance(float(levels))
    return lambda first, end: float(np.square(totals[end] - totals[first]).sum()) * draw


def _square_root() -> Errors:
    factor: NDArray[np.float64] = np.cumprod(np.r_[1.0, 1 - 1 / (2 * np.arange(1, HORIZON))])
    draw = noise_variance(float(factor.sum()))

    def variance(first: int, end: int) -> float:
        there, here = factor[:end][::-1], np.zeros(end)
        here[:first] = factor[:first][::-1]
        return float(np.square(there - here).sum()) * draw

    return variance


CONTENDERS: dict[str, Callable[[], Errors]] = {
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

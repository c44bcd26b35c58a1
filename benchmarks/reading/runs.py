"""Releases of streams whose truth is known, as ``eventveil.read`` would read them from a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np

from benchmarks.utility.measuring import AheadNoise
from benchmarks.utility.real import RealStream
from benchmarks.utility.streams import ORIGIN, Counts, bursts, departures, mixed, slow_drift
from eventveil.advise.generating import Traffic, draw
from eventveil.mechanisms.registry import build, options_of
from eventveil.model.topology import MechanismSettings, Option
from eventveil.read import Part, Releases

HOUR = 3_600_000
KINDS = ("sample", "seasonal", "budget-absorption", "uniform")
"""The least flattering first."""
TERMS = tuple(product(("0.1", "1"), (24, 120)))
"""Epsilon and window."""
_WEEKS = 24
_SITE_DAYS, _MONDAY = 42, 1_767_571_200_000


@dataclass(frozen=True)
class Run:
    """What one mechanism released of a stream."""

    stream: RealStream
    is_real: bool
    kind: str
    epsilon: str
    window: int
    releases: Releases


def streams() -> Iterator[tuple[RealStream, bool]]:
    """The streams that are measured on, and whether they are real: flights, sparse and dense, or drawn."""
    large = np.argsort(-departures(1).sum(axis=0), kind="stable")[:12]
    hourly, three = departures(1)[: _WEEKS * 168], departures(3)[: _WEEKS * 84]
    yield RealStream("departures, hour", hourly.sum(axis=1, keepdims=True), 1), True
    yield RealStream("departures, 3 hours", three.sum(axis=1, keepdims=True), 3), True
    yield RealStream("12 destinations, hour", hourly[:, large], 1), True
    yield RealStream("104 destinations, hour", hourly[: len(hourly) // 2], 1), True
    yield RealStream("104 destinations, 3 hours", three[:1344], 3), True
    yield RealStream("slow drift", slow_drift().counts, 1), False
    yield RealStream("bursts", bursts().counts, 1), False
    yield RealStream("mixed", mixed().counts[:1344, ::5], 1), False
    yield RealStream("site", site(_SITE_DAYS), 1), False


def site(days: int, seed: int = 1) -> Counts:
    """What the topology of ``eventveil generate site`` counts: each hour the section a user viewed first.

    All columns share a day and a week.
    """
    traffic = Traffic(_MONDAY, days, 270_000 * days // 21, 8, 20_000, seed=seed)
    events = draw(traffic)
    hours = (events.times - _MONDAY) // HOUR
    _, first = np.unique(hours * traffic.users + events.users, return_index=True)
    counts = np.zeros((24 * days, traffic.columns), np.int64)
    np.add.at(counts, (hours[first], events.columns[first]), 1)
    return counts


def run(stream: RealStream, is_real: bool, kind: str, epsilon: str, window: int, seed: int) -> Run:
    """Release a stream from its beginning."""
    options: dict[str, Option] = {"periods": stream.periods} if "periods" in options_of(kind) else {}
    settings = MechanismSettings(kind, Fraction(epsilon), epsilon, window, options=options)
    size, columns = stream.counts.shape
    mechanism = build(settings, columns, 1, AheadNoise(seed))
    counts, errors = np.empty_like(stream.counts), np.full(stream.counts.shape, np.nan)
    fresh, scales = np.zeros(size, bool), np.full(size, np.nan)
    for at, row in enumerate(stream.counts):
        release = mechanism.step(np.ascontiguousarray(row))
        counts[at], fresh[at] = release.counts, release.fresh
        if release.error is not None:
            errors[at] = release.error
        if release.noise_scale is not None:
            scales[at] = float(release.noise_scale)
    length = HOUR * stream.hours
    origin = int(ORIGIN.timestamp() * 1000)
    releases = Releases(
        stream=stream.name,
        columns=tuple(map(str, range(columns))),
        interval=length,
        timestamps=np.arange(1, size + 1),
        starts=(origin + length * np.arange(size)).astype("datetime64[ms]"),
        counts=counts,
        errors=errors,
        scales=scales,
        fresh=fresh,
        missing=((),) * size,
        parts=(Part(kind, epsilon, window, 1),),
        part_of=np.zeros(size, np.int64),
    )
    return Run(stream, is_real, kind, epsilon, window, releases)

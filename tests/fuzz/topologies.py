"""Random streams over one topic, and limits of the tasks so low that a few events reach them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from types import ModuleType
from typing import Any

import orjson
import pytest

from eventveil.counting import counter, users
from eventveil.model.topology import Topology
from eventveil.tasks import aggregate
from eventveil.topology.loading import load_text

#: Timestamp 1 begins here, in epoch milliseconds, and each lasts so long.
ORIGIN, INTERVAL = 1_767_225_600_000, 1000
_BEGIN = "2026-01-01T00:00:00Z"
#: With these, users are forgotten and numbered again, texts forgotten, turns and records cut after very few.
LIMITS: tuple[tuple[ModuleType, str, tuple[int, ...]], ...] = (
    (users, "_FREE", (0, 2)),
    (counter, "_FORGETS", (0,)),
    (counter, "_PIECE", (40,)),
    (aggregate, "_PORTION", (1, 3)),
    (aggregate, "_SLOW", (0,)),
)
_FILTERS: tuple[dict[str, Any], ...] = (
    {"/f": 1},
    {"/f": {"not": [1, 2]}},
    {"/f": {"present": True}},
    {"$headers/h": ["v"]},
    {"/g": ["p", "q"]},
)


@contextmanager
def low_limits(chance: Random) -> Iterator[None]:
    """Some limits of the tasks are low in the meantime."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, low in LIMITS:
            patch.setattr(module, name, chance.choice((getattr(module, name), *low)))
        yield


def random_topology(chance: Random) -> Topology:
    """One or two streams over one topic, keyed by user or re-keyed, with any rules that go together."""
    shared = _shared(chance)
    file = {
        "version": 1,
        "name": "fuzz",
        "kafka": {"bootstrap": "localhost:9092"},
        "streams": {
            f"s{number}": {
                **_counting(chance, shared),
                "timeline": _timeline(chance),
                "mechanism": {"kind": "uniform", "epsilon": 1, "window": 3},
                "sink": {"topic": f"sink{number}"},
            }
            for number in range(chance.choice((1, 1, 2)))
        },
    }
    return load_text("fuzz.yaml", orjson.dumps(file).decode(), {})


def _shared(chance: Random) -> dict[str, Any]:
    """What streams over one topic have in common."""
    source: dict[str, Any] = {
        "topic": "events",
        "user": chance.choice(("/u", "/u", ["/u", "/s"], "$key", "/d/u")),
        "time": chance.choice(("/t", "/t", "/t", ["/t", "/t2"])),
    }
    # A key can only hold text.
    kinds = ("string", "string", "either", *(() if source["user"] == "$key" else ("integer",)))
    source["user_type"] = chance.choice(kinds)
    if chance.random() < 0.45:
        source["repartition"] = True
    else:
        source["partitioner"] = chance.choice(("murmur2", "crc32"))
    if chance.random() < 0.4:
        source["append_time"] = "boundary"
    return source


@dataclass(frozen=True)
class _Columns:
    """Settings of the source and of the counts; ``number`` is None where columns are found in the data.

    ``unknown`` is what can become of an event of another column; empty: what is the default.
    """

    source: dict[str, Any]
    columns: Any
    number: int | None
    unknown: tuple[str, ...] = field(default=("ignore", "dead-letter"))


def _counting(chance: Random, shared: dict[str, Any]) -> dict[str, Any]:
    of = chance.choice((_listed, _listed, _products, _range, _found, _mapped))(chance)
    contributions = chance.choice((1, 1, 2, 3, 5))
    source = {**shared, **of.source}
    counts = {"columns": of.columns, "contributions": contributions}
    if of.unknown == ("rest",) or (of.unknown and chance.random() < 0.6):
        counts["unknown"] = chance.choice(of.unknown)
    if chance.random() < 0.35:
        source["filter"] = chance.choice(_FILTERS)
    if of.number is not None and contributions > 1 and chance.random() < 0.55:
        per_column = chance.randint(1, contributions)
        # Nobody could have as many events as the bound allows.
        if per_column * of.number >= contributions:
            counts["per_column"] = per_column
    return {"source": source, "counts": counts}


def _labels(chance: Random) -> list[str]:
    return chance.sample("abcdef", chance.randint(1, 5))


def _listed(chance: Random) -> _Columns:
    labels, column = _labels(chance), chance.choice(("/c", "/c", "$headers/c"))
    return _Columns({"column": column}, labels, len(labels), ("ignore", "dead-letter", labels[0]))


def _range(chance: Random) -> _Columns:
    last = chance.randint(0, 4)
    return _Columns({"column": "/n"}, {"range": [0, last]}, last + 1, ("ignore", "dead-letter", "0"))


def _products(chance: Random) -> _Columns:
    labels = _labels(chance)
    columns: dict[str, Any] = {"product": [labels, ["0", "1", "2"]]}
    if chance.random() < 0.5:
        return _Columns(
            {"column": ["/c", "/n"]}, {**columns, "also": ["rest"]}, 3 * len(labels) + 1, ("rest",)
        )
    return _Columns({"column": ["/c", "/n"]}, columns, 3 * len(labels), ())


def _mapped(chance: Random) -> _Columns:
    names = {"values": {"a": "x", "b": "x"}, "prefixes": {"c": "y"}, "otherwise": chance.choice(("z", "x"))}
    return _Columns({"column": "/c", "maps": {"/c": names}}, ["x", "y", "z"], 3, ())


def _found(chance: Random) -> _Columns:
    return _Columns({"column": "/c"}, {"discover": {"delta": "1e-6", "share": "0.5"}}, None, ())


def _timeline(chance: Random) -> dict[str, Any]:
    return {
        "interval": f"{INTERVAL}ms",
        "origin": _BEGIN,
        "start": _BEGIN,
        "lateness": f"{chance.choice((0, 0, 200, 700, 1300))}ms",
        "max_ahead": f"{chance.choice((0, 300, 1000, 3000))}ms",
        "clock_skew": f"{chance.choice((1, 50, 300))}ms",
    }

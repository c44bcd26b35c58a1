"""Records of a sink, made field by field, and releases of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from eventveil import read
from eventveil.model.timeline import format_rfc3339

HOUR = 3_600_000
#: 2026-03-01T00:00:00Z, a Sunday.
ORIGIN = 1_772_323_200_000


def record(timestamp: int = 1, *, interval: int = HOUR, origin: int = ORIGIN, **fields: Any) -> bytes:
    """One that `uniform` releases, with other ``fields``; None leaves one out."""
    start = origin + (timestamp - 1) * interval
    made: dict[str, Any] = {
        "stream": "views",
        "timestamp": timestamp,
        "start": format_rfc3339(start),
        "end": format_rfc3339(start + interval),
        "counts": {"home": 10 * timestamp, "basket": -timestamp},
        "error": 5.5,
        "noise_scale": 4.0,
        "fresh": True,
        "mechanism": "uniform",
        "epsilon": "1",
        "window": 24,
        "units": 100,
        "spent": {"test": 0, "publish": 1},
        "window_spent": 24,
    }
    made |= fields
    return orjson.dumps({name: value for name, value in made.items() if value is not None})


def written(folder: Path, records: Iterable[bytes], name: str = "releases.jsonl") -> Path:
    path = folder / name
    path.write_bytes(b"".join(one + b"\n" for one in records))
    return path


def releases(
    counts: Any,
    errors: Any,
    *,
    fresh: Any = None,
    scales: Any = None,
    kind: str = "uniform",
    interval: int = HOUR,
    first: int = ORIGIN,
    span: int = 1,
    timestamps: Any = None,
    minimum: int | None = None,
) -> read.Releases:
    """Releases of arrays, without a file in between; errors broadcast to the shape of the counts."""
    values = np.asarray(counts, np.int64)
    size = len(values)
    numbers = np.arange(1, size + 1) if timestamps is None else np.asarray(timestamps)
    return read.Releases(
        stream="views",
        columns=tuple(f"c{at}" for at in range(values.shape[1])),
        interval=interval,
        timestamps=numbers,
        starts=(first + (numbers - 1) * interval).astype("datetime64[ms]"),
        counts=values,
        errors=np.broadcast_to(np.asarray(errors, float), values.shape).copy(),
        scales=np.full(size, np.nan) if scales is None else np.asarray(scales, float),
        fresh=np.ones(size, bool) if fresh is None else np.asarray(fresh, bool),
        missing=((),) * size,
        parts=(read.Part(kind, "1", 24, span, minimum),),
        part_of=np.zeros(size, np.int64),
    )

"""The public record of a release and its entry in the ledger, byte by byte.

Both are encoded once, when the release is decided; every later emission copies the bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import orjson

from eventveil.local.control import Control
from eventveil.mechanisms.base import RELEASE_LIMIT, Release
from eventveil.mechanisms.forecasting.arithmetic import Floats, exp
from eventveil.model.timeline import format_rfc3339, start_of
from eventveil.model.topology import Stream
from eventveil.topology.columns import columns_digest

#: The record that asks for the reports of a threshold, with None for those of the distribution.
Asks = Callable[[int | None], bytes]

_LEAST_ERROR = 1e-9
_LEDGER_FIELDS = (
    "stream", "timestamp", "fresh", "mechanism", "epsilon", "window", "units", "spent", "window_spent",
)  # fmt: skip
_LEAST_POWER, _UNIT = -9, 9
_TENS = np.array([float(f"1e{power}") for power in range(_LEAST_POWER, 14)])
_THIRD = _UNIT + 3  # the third digit of a number with this many powers of ten below it is that of units
_LEDGER_OPTIONAL = ("forfeited", "exhausted", "phase", "threshold")


def release_record(
    stream: Stream,
    timestamp: int,
    release: Release,
    units: int,
    *,
    seeded: bool = False,
    missing: Sequence[int] = (),
    forfeited: bool = False,
) -> bytes:
    """The sink record (schemas/release.schema.json).

    ``seeded`` marks a replay with predictable noise, ``missing`` the source partitions that do not count,
    ``forfeited`` a timestamp that is charged as if it had been published.
    """
    release = clipped(release, stream.sink.minimum)
    record: dict[str, Any] = {
        "stream": stream.name,
        "timestamp": timestamp,
        "start": format_rfc3339(start_of(stream.timeline, timestamp)),
        "end": format_rfc3339(start_of(stream.timeline, timestamp + 1)),
        **_counts(stream, release),
        **_error(stream, release),
        **_window(stream, release),
        **_local(release),
        **_minimum(stream),
        "fresh": release.fresh,
        **_charge(stream, release, units),
    }
    if missing:
        record["missing"] = list(missing)
    if forfeited:
        record["forfeited"] = True
    if release.exhausted:
        record["exhausted"] = True
    if seeded:
        record["seeded"] = True
    return orjson.dumps(record)


def fields_of(record: bytes | None, stream: str) -> dict[str, Any] | None:
    """The fields of a record of a ledger or sink that says it is of ``stream``; None for any other."""
    try:
        fields = orjson.loads(record or b"null")
    except orjson.JSONDecodeError:
        return None
    return fields if isinstance(fields, dict) and fields.get("stream") == stream else None


def release_timestamp(record: bytes, stream: str) -> int:
    """The timestamp of a sink record of ``stream``; 0 if it is none."""
    timestamp = (fields_of(record, stream) or {}).get("timestamp")
    return timestamp if type(timestamp) is int else 0


def ledger_entry(record: bytes, instance: str) -> bytes:
    """The immutable ledger entry (schemas/ledger-entry.schema.json) of a release published as ``record``.

    It holds what the release says of itself, its counts replaced by the digest of the whole record.
    """
    fields = orjson.loads(record)
    entry = {name: fields[name] for name in _LEDGER_FIELDS}
    entry |= {name: fields[name] for name in _LEDGER_OPTIONAL if name in fields}
    return orjson.dumps({**entry, "digest": digest(record), "instance": instance})


def control_record(stream: Stream, threshold: int | None) -> bytes:
    """What a stream of local reports asks its producers for (schemas/control.schema.json)."""
    mechanism = stream.mechanism
    return Control(stream.name, mechanism.epsilon, int(mechanism.options["maximum"]), threshold).encode()


def newly_chosen(record: bytes) -> int | None:
    """The threshold that the timestamp of a release of local reports chose, if it did."""
    fields = orjson.loads(record)
    threshold: int | None = fields.get("threshold") if fields["phase"] == "distribution" else None
    return threshold


def digest(record: bytes) -> str:
    """The SHA-256 of a release record, in hexadecimal."""
    return hashlib.sha256(record).hexdigest()


def _counts(stream: Stream, release: Release) -> dict[str, Any]:
    counts = {"counts": _by_column(stream, release.counts.tolist())}
    if stream.sink.counts == "array":
        return {**counts, "columns_digest": columns_digest(stream.columns)}
    return counts


def _error(stream: Stream, release: Release) -> dict[str, Any]:
    """How far counts are expected to err, and the scale of the noise where that is all there is."""
    fields: dict[str, Any] = {}
    if release.error is not None:
        values = three_digits(release.error)
        fields["error"] = _by_column(stream, values.tolist()) if len(values) > 1 else float(values[0])
    if release.noise_scale is not None:
        fields["noise_scale"] = float(release.noise_scale)
    return fields


def _minimum(stream: Stream) -> dict[str, Any]:
    """That counts are cut off below, so that a reader of the record alone knows of the bias."""
    return {} if stream.sink.minimum is None else {"minimum": stream.sink.minimum}


def clipped(release: Release, minimum: int | None) -> Release:
    """The release with no count below ``minimum``, and the errors of that; itself if that is None.

    Post-processing, of a window's history too; the mechanism goes on with what it drew. ``groups`` stay as
    they are: their totals are sums, which clipping would bias.

    A count that is cut off is nearer to a true count that is no less than ``minimum``. For Laplace noise Z of
    standard deviation s, and a true count x above the minimum, the mean square of max(x + Z, 0) - x is
    s^2 (1 - e^-v (1 + v) / 2), v = x root(2) / s: half of s^2 at 0, s^2 far above. The released count stands
    for x, and all of its error for such noise, also where some of it is movement.
    """
    if minimum is None:
        return release
    counts = np.maximum(release.counts, minimum)
    history = tuple(max(count, minimum) for count in release.history)
    if release.error is None:
        return replace(release, counts=counts, history=history)
    above = (counts - minimum) * (np.sqrt(2.0) / np.maximum(release.error, _LEAST_ERROR))
    share = 1 - exp(-np.minimum(above, 700.0)) * (1 + above) / 2
    error = release.error * np.sqrt(share)
    return replace(release, counts=counts, history=history, error=error, noise_scale=None)


def three_digits(numbers: Floats) -> Floats:
    """Numbers of at least 0 to three significant digits, such as JSON has; 0 below 1e-9.

    At most 2e12: counts differ by no more.
    """
    bounded = np.minimum(numbers, 2.0 * RELEASE_LIMIT)
    above = np.searchsorted(_TENS, bounded, "right")  # the last of these powers of ten has the first digit
    large = above > _THIRD
    steps = _TENS[np.where(large, above - _THIRD, _THIRD - above) + _UNIT]
    rounded: Floats = np.where(large, np.rint(bounded / steps) * steps, np.rint(bounded * steps) / steps)
    return np.where(above == 0, 0.0, rounded)


def _by_column(stream: Stream, values: list[Any]) -> list[Any] | dict[str, Any]:
    return values if stream.sink.counts == "array" else dict(zip(stream.columns, values, strict=True))


def _window(stream: Stream, release: Release) -> dict[str, Any]:
    """What a release over a sliding window says of it; nothing where the window is one timestamp."""
    span = stream.mechanism.options.get("span", 1)
    if span == 1:
        return {}
    if not release.history:
        return {"span": span}
    groups = [{"length": length, "total": total} for length, total in release.groups]
    return {"span": span, "history": release.history, "groups": groups}


def _local(release: Release) -> dict[str, Any]:
    """What reports were for, and what the next ones are to be made for."""
    if release.phase is None:
        return {}
    threshold = {} if release.threshold is None else {"threshold": release.threshold}
    return {"phase": release.phase, **threshold}


def _charge(stream: Stream, release: Release, units: int) -> dict[str, Any]:
    return {
        "mechanism": stream.mechanism.kind,
        "epsilon": stream.mechanism.epsilon_text,
        "window": stream.mechanism.window,
        "units": units,
        "spent": {"test": release.test, "publish": release.publish},
        "window_spent": release.window_spent,
    }

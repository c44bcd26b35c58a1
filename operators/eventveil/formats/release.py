"""The public record of a release and its entry in the ledger, byte by byte.

Both are encoded once, when the release is decided; every later emission copies the bytes.

A sink gets the JSON of a release, or behind the prefix of a schema registry JSON or Avro. What is decided is
the release together with the id of the schema, so that what is published is a function of what is decided,
and the same bytes go out again after a crash, with no registry to ask. The ledger has the digest of these
bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import orjson

from eventveil.decoding.schemas import PREFIX, schema_id, zigzag
from eventveil.describe.guarantee import number
from eventveil.local.control import Control
from eventveil.mechanisms.arithmetic import Floats, exp
from eventveil.mechanisms.base import RELEASE_LIMIT, Release
from eventveil.model.errors import EventveilError
from eventveil.model.timeline import format_rfc3339, start_of
from eventveil.model.topology import SinkFormat, Stream
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
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LEDGER_OPTIONAL = ("noise", "delta", "discovery", "forfeited", "exhausted", "phase", "threshold")


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
    mechanism, found = stream.mechanism, stream.counts.discover
    span = mechanism.options.get("span", 1)
    history = () if span == 1 else release.history
    groups = [{"length": length, "total": total} for length, total in release.groups]
    fields: dict[str, Any] = {
        "stream": stream.name,
        "timestamp": timestamp,
        "start": format_rfc3339(start_of(stream.timeline, timestamp)),
        "end": format_rfc3339(start_of(stream.timeline, timestamp + 1)),
        "counts": _by_column(stream, release.counts.tolist()),
        "columns_digest": _columns_digest(stream),
        # How far counts are expected to err, the scale of the noise where that is all there is, and in which
        # blocks of timestamps it cancels.
        "error": _error(stream, release),
        "noise_scale": None if release.noise_scale is None else float(release.noise_scale),
        "blocks": _blocks(release),
        "rollups": release.rollups or None,
        # Of a release over a sliding window.
        "span": None if span == 1 else span,
        "history": history or None,
        "groups": groups if history else None,
        # What reports were for, and what the next ones are to be made for.
        "phase": release.phase,
        "threshold": None if release.phase is None else release.threshold,
        # Counts are cut off below: a reader of the record alone knows of the bias.
        "minimum": stream.sink.minimum,
        "fresh": release.fresh,
        "mechanism": mechanism.kind,
        "epsilon": mechanism.epsilon_text,
        # With Gaussian noise units are of mu squared (``eventveil.privacy.gaussian``).
        "noise": None if mechanism.delta is None else "gaussian",
        "delta": None if mechanism.delta is None else str(mechanism.delta),
        # What a window pays for columns that are found in the data, beside what the mechanism may spend.
        "discovery": None if found is None else {"epsilon": number(found.epsilon), "delta": str(found.delta)},
        "window": mechanism.window,
        "units": units,
        "spent": {"test": release.test, "publish": release.publish},
        "window_spent": release.window_spent,
        "missing": list(missing) or None,
        "forfeited": forfeited or None,
        "exhausted": release.exhausted or None,
        "seeded": seeded or None,
    }
    return orjson.dumps({name: value for name, value in fields.items() if value is not None})


def fields_of(record: bytes | None, stream: str) -> dict[str, Any] | None:
    """The fields of a record of a ledger or sink that says it is of ``stream``; None for any other.

    Of a release in Avro only stream and timestamp, which no registry is needed for.
    """
    try:
        fields = _beginning(record) if is_avro(record or b"") else orjson.loads(as_json(record or b"null"))
    except orjson.JSONDecodeError:
        return None
    return fields if isinstance(fields, dict) and fields.get("stream") == stream else None


def _beginning(record: bytes | None) -> dict[str, Any] | None:
    found = first_fields(record or b"")
    return None if found is None else {"stream": found[0], "timestamp": found[1]}


def release_timestamp(record: bytes, stream: str) -> int:
    """The timestamp of a sink record of ``stream``; 0 if it is none."""
    timestamp = (fields_of(record, stream) or {}).get("timestamp")
    return timestamp if type(timestamp) is int else 0


def ledger_entry(record: bytes, instance: str, published: bytes | None = None, version: str = "") -> bytes:
    """The immutable ledger entry (schemas/ledger-entry.schema.json) of a release.

    It holds what the release says of itself, its counts replaced by the digest of the whole value that is
    ``published``, by default the ``record`` itself, and the ``version`` of Eventveil that has decided it, if
    that is recorded.
    """
    # Counts may be many, and are passed over.
    fields = _MEMBERS.decode(record)
    entry: dict[str, object] = {name: fields[name] for name in _LEDGER_FIELDS}
    entry |= {name: fields[name] for name in _LEDGER_OPTIONAL if name in fields}
    shown = record if published is None else published
    decided_by = {"eventveil": version} if version else {}
    return msgspec.json.encode({**entry, "digest": digest(shown), "instance": instance, **decided_by})


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


def _columns_digest(stream: Stream) -> str | None:
    """Of the names of columns, where they are left out."""
    if stream.sink.counts != "array":
        return None
    # Columns that are found in the data are others from time to time, and would all be kept.
    digest = columns_digest if stream.counts.discover is not None else _listed_digest
    return digest(stream.columns)


@lru_cache(maxsize=1024)
def _listed_digest(columns: tuple[str, ...]) -> str:
    return columns_digest(columns)


def _error(stream: Stream, release: Release) -> Any:
    if release.error is None:
        return None
    values = three_digits(release.error)
    return _by_column(stream, values.tolist()) if len(values) > 1 else float(values[0])


def _blocks(release: Release) -> dict[str, Any] | None:
    if release.nesting is None:
        return None
    lengths, at, scale = release.nesting
    return {"lengths": lengths, "at": at, "scale": float(scale)}


def clipped(release: Release, minimum: int | None) -> Release:
    """The release with no count below ``minimum``, and the errors of that; itself if that is None.

    Post-processing, of a window's history too; the mechanism continues with what it drew. ``groups`` stay as
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


_INSTALLED = Path(__file__).parents[1] / "data" / "schemas"
_SOURCES = Path(__file__).parents[3] / "schemas"
#: The encodings by the name that states know them by: what they mean never changes. So a new field of a
#: release needs a new name here with a schema of its own, and the old ones with their files are kept.
_CODES: dict[SinkFormat, str] = {"json-schema": "json-schema", "avro": "avro-1"}
_FILES: dict[str, str] = {"json-schema": "release-1.schema.json", "avro-1": "release-1.avsc"}
_LABEL = re.compile(r"([a-z0-9-]+) ([0-9]{1,10}) ")
#: A state needs no more for a decided release beside its JSON: a code, an id, two spaces.
LABEL_BYTES = 32
MISSING = "the packages for schemas are not installed ({}): pip install 'eventveil[registry]'"


def schema_text(form: SinkFormat) -> str:
    """The schema of releases in a format; KeyError for one that needs none."""
    return _text(_CODES[form])


@cache
def _text(code: str) -> str:
    folder = _INSTALLED if _INSTALLED.is_dir() else _SOURCES
    return (folder / _FILES[code]).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Decided:
    """A release that is decided: ``record`` is its JSON, ``published`` are the bytes of the sink."""

    record: bytes
    published: bytes


def label(record: bytes, form: SinkFormat, schema: int | None) -> str:
    """What a state keeps of a decided release; ``schema`` is the id of its schema, where it has one.

    Raises ValueError if the release cannot be published in this format.
    """
    if form == "json":
        return record.decode()
    if schema is None:
        raise ValueError(f"the id of the schema of {form} is not known")
    text = f"{_CODES[form]} {schema} {record.decode()}"
    decided(text)
    return text


def decided(kept: str) -> Decided:
    """What ``label`` has made of a release. Raises ValueError for anything else, and EventveilError if what
    writes Avro is not installed."""
    found = _LABEL.match(kept)
    if found is None:
        return Decided(kept.encode(), kept.encode())
    code, record = found[1], kept[found.end() :].encode()
    if code not in _FILES:
        raise ValueError(
            f"a later version has decided a release, as {code}; run that version until it is published"
        )
    body = record if code == "json-schema" else _avro(record, code)
    return Decided(record, b"\0" + int(found[2]).to_bytes(PREFIX - 1, "big") + body)


def _avro(record: bytes, code: str) -> bytes:
    try:
        from eventveil.formats.avro import encoded
    except ImportError as error:
        raise EventveilError(MISSING.format(error)) from None
    return encoded(record, _text(code))


def is_avro(value: bytes) -> bool:
    """Whether the value of a sink is an Avro record behind a prefix.

    No Avro release begins like JSON: that byte would be the length of a name below zero.
    """
    return schema_id(value) is not None and value[PREFIX : PREFIX + 1] != b"{"


def as_json(value: bytes, read: Callable[[bytes], bytes] | None = None) -> bytes:
    """The JSON of a release in a sink; ``read`` reads an Avro value, None for those of this version.

    What is no release at all comes back as it is. Raises ValueError for Avro that cannot be read.
    """
    if schema_id(value) is None:
        return value
    if not is_avro(value):
        return value[PREFIX:]
    return own(value) if read is None else read(value)


def own(value: bytes) -> bytes:
    """The JSON of an Avro value that this version has written. Raises ValueError and EventveilError."""
    try:
        from eventveil.formats.avro import decoded
    except ImportError as error:
        raise EventveilError(MISSING.format(error)) from None
    return decoded(value[PREFIX:], _text(_CODES["avro"]))


def first_fields(value: bytes) -> tuple[str, int] | None:
    """Stream and timestamp of an Avro release, which every version of its schema begins with.

    So no registry is needed to know what a sink shows. None if these are not there.
    """
    if (counted := zigzag(value, PREFIX)) is None:
        return None
    length, at = counted
    end = at + length
    if length < 0 or end > len(value) or (timestamp := zigzag(value, end)) is None:
        return None
    try:
        return value[at:end].decode(), timestamp[0]
    except UnicodeDecodeError:
        return None

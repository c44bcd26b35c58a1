"""One record of a sink (schemas/release.schema.json): its bytes, checked field by field."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from eventveil.mechanisms.base import RELEASE_LIMIT
from eventveil.read.problems import ReadingError

_Count = Annotated[int, Meta(ge=-RELEASE_LIMIT, le=RELEASE_LIMIT)]
_Natural = Annotated[int, Meta(ge=0)]
_Positive = Annotated[int, Meta(ge=1)]
_Deviation = Annotated[float, Meta(ge=0)]


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Consecutive timestamps of a window at user level, and the sum of their counts."""

    length: _Positive
    total: int


class Spent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a timestamp has spent, in units."""

    test: _Natural
    publish: _Natural


class Blocks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nested blocks of timestamps in whose sums noise cancels."""

    lengths: Annotated[list[_Positive], Meta(min_length=1)]
    at: _Positive
    scale: _Deviation


class Discovery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a window pays for columns that are found in the data."""

    epsilon: str
    delta: str


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a release; None for those that it does not have.

    A field that this version does not know is refused: it could change what the others mean.
    """

    stream: str
    timestamp: _Positive
    start: str
    end: str
    counts: dict[str, _Count] | list[_Count]
    fresh: bool
    mechanism: str
    epsilon: str
    window: _Positive
    units: _Positive
    spent: Spent
    window_spent: _Natural
    noise: Literal["gaussian"] | None = None
    delta: str | None = None
    discovery: Discovery | None = None
    columns_digest: str | None = None
    error: dict[str, _Deviation] | list[_Deviation] | _Deviation | None = None
    noise_scale: _Deviation | None = None
    minimum: Literal[0] | None = None
    blocks: Blocks | None = None
    rollups: list[_Positive] | None = None
    span: _Positive = 1
    history: list[_Count] | None = None
    groups: list[Group] | None = None
    phase: str | None = None
    threshold: _Positive | None = None
    missing: list[_Natural] | None = None
    forfeited: bool = False
    exhausted: bool = False
    seeded: bool = False


_DECODER = msgspec.json.Decoder(Record)
_GIVE = "Give a sink, or what `eventveil replay` writes to --output (schemas/release.schema.json)"


def decode(value: bytes | None, place: str) -> Record:
    """The record whose bytes are ``value``; ``place`` says where they were found, for errors.

    Raises ReadingError, which names the place and the field.
    """
    try:
        return _DECODER.decode(value or b"")
    except msgspec.DecodeError as error:
        raise _refused(value or b"", place, error) from None


def _refused(value: bytes, place: str, error: msgspec.DecodeError) -> ReadingError:
    try:
        fields = msgspec.json.decode(value)
    except msgspec.DecodeError:
        what = "an empty line" if not value.strip() else f"no whole JSON object ({error})"
        return ReadingError(place, what, "Was it cut off? Write the file again, whole records only")
    if isinstance(fields, dict) and "reading" in fields:
        return ReadingError(
            place,
            "a reading of one value, not the counts of a timestamp",
            "Streams of values have no timestamps; read their sink or file as lines of JSON"
            " (schemas/reading.schema.json)",
        )
    if (other := _other_than_release(fields)) is not None:
        return ReadingError(place, other, _GIVE)
    return ReadingError(place, f"no release: {_told(error, fields)}", _remedy(error))


def _other_than_release(fields: Any) -> str | None:
    """What a JSON value is that has not even the fields that say whose counts it has; None for a release."""
    if not isinstance(fields, dict):
        return None
    if lacks := [name for name in ("stream", "counts") if name not in fields]:
        return f"not a release: it has {'neither stream nor counts' if len(lacks) > 1 else f'no {lacks[0]}'}"
    return (
        "not a release, but a line of `--truth`" if "events" in fields and "mechanism" not in fields else None
    )


def _told(error: msgspec.DecodeError, fields: Any) -> str:
    """The decoder's message, with the name of the column where it only says that one is wrong."""
    for name in ("counts", "error"):
        values = fields.get(name) if isinstance(fields, dict) else None
        if isinstance(values, dict) and f"$.{name}[...]" in str(error):
            wrong = next((column for column, one in values.items() if not _fits(one, name)), "...")
            return str(error).replace(f"$.{name}[...]", f"{name}, column {wrong}")
    return str(error)


def _fits(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return False
    if name == "counts":
        return isinstance(value, int) and abs(value) <= RELEASE_LIMIT
    return isinstance(value, int | float) and value >= 0


def _remedy(error: msgspec.DecodeError) -> str:
    if "unknown field" in str(error):
        return "A later version of Eventveil may have written it; update this one"
    return _GIVE

"""The public records of a value stream, byte by byte: a reading, and the ledger entry of a span of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from eventveil.model.topology import ReadingStream
from eventveil.values.ledger import Charge


def reading_record(
    stream: ReadingStream,
    partition: int,
    position: int,
    offset: int,
    reading: int | None,
    *,
    seeded: bool = False,
) -> bytes:
    """The sink record (schemas/reading.schema.json) of the value at ``position``, from 0, of a partition.

    ``offset`` is that of its event. ``reading`` is in steps of the grid, None for a value that was held back.
    """
    record: dict[str, Any] = {
        "stream": stream.name,
        "partition": partition,
        "position": position,
        "offset": offset,
        "reading": reading,
        "step": stream.step_text,
        **terms_of(stream),
    }
    if seeded:
        record["seeded"] = True
    return orjson.dumps(record)


def span_entry(
    stream: ReadingStream, partition: int, charge: Charge, units: int, instance: str, version: str = ""
) -> bytes:
    """The ledger entry (schemas/ledger-span.schema.json) of a charge; ``units`` make up epsilon.

    ``version`` is that of Eventveil which has charged it, empty if that is not recorded.
    """
    return orjson.dumps(
        {
            "stream": stream.name,
            "partition": partition,
            "purpose": charge.purpose,
            "start": charge.start,
            "stop": charge.stop,
            "spent": charge.units,
            "units": units,
            **terms_of(stream),
            "instance": instance,
            **({"eventveil": version} if version else {}),
        }
    )


def terms_of(stream: ReadingStream) -> dict[str, str]:
    """What every record of a stream says of its guarantee."""
    mechanism = stream.mechanism
    terms = {"mechanism": mechanism.kind, "epsilon": mechanism.epsilon_text}
    # An epsilon that may fail must not be taken for one that cannot.
    return {**terms, "delta": str(mechanism.options["delta"])} if "delta" in mechanism.options else terms


def reading_position(fields: Mapping[str, Any] | None, partition: int) -> int:
    """The position that the fields of a sink record are of; -1 if it is not a reading of that partition."""
    found = fields or {}
    position = found.get("position")
    return position if found.get("partition") == partition and type(position) is int else -1

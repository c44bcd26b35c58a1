"""Where releases are read from: a file, or a topic up to its current end."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from eventveil.read.assembling import Assembly
from eventveil.read.problems import ReadingError
from eventveil.read.releases import Releases, instant

if TYPE_CHECKING:
    from eventveil.model.topology import Kafka, Registry, Stream, Topology

#: Told now and then while reading: how much is done, and of how much.
Progress = Callable[[int, int], None]
_GZIP = b"\x1f\x8b"
_OFTEN = 256


def file(
    path: str | os.PathLike[str],
    stream: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    start: Any = None,
    end: Any = None,
    progress: Progress | None = None,
) -> Releases:
    """The releases in a file with a record a line, as `eventveil replay` writes it, also packed by gzip.

    ``stream`` may be left out if the file has only one. ``columns`` are needed where the sink has
    ``counts: array``. Timestamps in [``start``, ``end``) are kept; both as ``Releases.between`` takes them.
    Raises ReadingError, which names the line and the field, and OSError.
    """
    name = os.fspath(path)
    assembly = Assembly(name, stream, columns, _milliseconds(start), _milliseconds(end))
    with open(name, "rb") as raw:
        size = Path(name).stat().st_size
        try:
            for number, line in enumerate(_unpacked(raw), 1):
                assembly.add(line, f"{name}, line {number}")
                if progress and number % _OFTEN == 0:
                    progress(raw.tell(), size)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ReadingError(name, f"it cannot be unpacked ({error})", "Write it again") from None
    return assembly.releases()


def _unpacked(raw: BinaryIO) -> Iterator[bytes]:
    packed = raw.read(2) == _GZIP
    raw.seek(0)
    return iter(gzip.open(raw, "rb") if packed else raw)


def topic(
    topology: str | os.PathLike[str] | Topology | None = None,
    stream: str | None = None,
    *,
    bootstrap: str | None = None,
    topic: str | None = None,
    registry: str | None = None,
    columns: Sequence[str] | None = None,
    start: Any = None,
    end: Any = None,
    progress: Progress | None = None,
) -> Releases:
    """The releases in a sink, committed ones only, up to its current end.

    Of a stream of a ``topology``, a file or a loaded one, whose variables come from the environment; or of a
    ``topic`` on the brokers ``bootstrap``, and with a schema ``registry`` at this address where releases have
    schemas, both without security. For the rest see ``file``. Raises ReadingError,
    TopologyInvalid, EventveilError and KafkaException.
    """
    from eventveil.read.sinks import read_sink

    kafka, schemas, sink, stream, columns = _wanted(topology, bootstrap, topic, registry, stream, columns)
    assembly = Assembly(f"topic {sink}", stream, columns, _milliseconds(start), _milliseconds(end))
    read_sink(kafka, sink, assembly, schemas, progress)
    return assembly.releases()


def _wanted(
    topology: str | os.PathLike[str] | Topology | None,
    bootstrap: str | None,
    topic: str | None,
    registry: str | None,
    stream: str | None,
    columns: Sequence[str] | None,
) -> tuple[Kafka, Registry | None, str, str | None, Sequence[str] | None]:
    from eventveil.model.topology import Kafka, Registry
    from eventveil.topology.loading import load

    if topology is None:
        if bootstrap is None or topic is None:
            raise ReadingError(
                "read.topic", "no place to read from", "Give a topology, or bootstrap and topic"
            )
        return Kafka(bootstrap), None if registry is None else Registry(registry), topic, stream, columns
    if bootstrap is not None or topic is not None or registry is not None:
        raise ReadingError("read.topic", "two places to read from", "Give the topology alone")
    loaded = load(os.fspath(topology), os.environ) if isinstance(topology, str | os.PathLike) else topology
    found = stream_of(loaded, stream)
    return loaded.kafka, loaded.registry, found.sink.topic, found.name, found.columns


def stream_of(topology: Topology, name: str | None) -> Stream:
    """The stream of counts with that name, or the only one. Raises ReadingError."""
    known = {stream.name: stream for stream in topology.streams}
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    if name in known:
        return known[str(name)]
    if name in {stream.name for stream in topology.readings}:
        raise ReadingError(
            topology.path,
            f"{name} is a stream of values, which has no timestamps",
            "Read its sink as it is (schemas/reading.schema.json)",
        )
    what = (
        "the stream to read is not named"
        if name is None
        else f"it has no stream of counts with the name {name}"
    )
    raise ReadingError(
        topology.path, what, f"Name one (--stream, in Python stream=): {', '.join(known) or 'none'}"
    )


def _milliseconds(time: Any) -> int | None:
    return None if time is None else int(instant(time).astype(np.int64))

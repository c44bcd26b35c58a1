"""The files that a replay writes: complete or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import orjson
from numpy.typing import NDArray

from eventveil.kinds.registry import kind_of
from eventveil.model.topology import Stream
from eventveil.process.atomic_file import OWNER_ONLY, appearing
from eventveil.replay.releasing import Released
from eventveil.replay.values import Replayed


@dataclass(frozen=True, slots=True)
class Paths:
    """Where to write the releases, the ledger lines and the true counts; None: not wanted.

    STANDARD_OUTPUT instead of a path is possible.
    """

    output: str
    ledger: str | None = None
    truth: str | None = None


class OutputFiles:
    """Open files, one JSON line per release, or reading, in each."""

    def __init__(self, output: BinaryIO, ledger: BinaryIO | None, truth: BinaryIO | None) -> None:
        self._output, self._ledger, self._truth = output, ledger, truth

    def write(self, released: Released) -> None:
        """Append a release to every file. Raises OSError."""
        self._output.write(released.record + b"\n")
        if self._ledger is not None:
            self._ledger.write(ledger_line(released))
        if self._truth is not None:
            self._truth.write(truth_line(released))

    def write_values(self, replayed: Replayed) -> None:
        """Append the readings, charges and true values of a chunk. Raises OSError."""
        self._output.writelines(record + b"\n" for record in replayed.records)
        if self._ledger is not None:
            self._ledger.writelines(span_lines(replayed))
        if self._truth is not None:
            self._truth.writelines(value_lines(replayed))


@contextmanager
def open_outputs(paths: Paths) -> Iterator[OutputFiles]:
    """Files that appear under their names, replacing what was there, when the ``with`` block ends well.

    After an exception nothing has changed. The true counts are readable by their owner only. Raises OSError.
    """
    with ExitStack() as stack:
        # Opened first, so closed and named last: where the releases are, the rest is.
        output = stack.enter_context(appearing(paths.output))
        ledger = stack.enter_context(appearing(paths.ledger)) if paths.ledger else None
        truth = stack.enter_context(appearing(paths.truth, OWNER_ONLY)) if paths.truth else None
        yield OutputFiles(output, ledger, truth)


def ledger_line(released: Released) -> bytes:
    """What a release spent, with its line feed; ``units`` make up epsilon."""
    release = released.release
    line = {
        "stream": released.stream.name,
        "timestamp": released.timestamp,
        "test": release.test,
        "publish": release.publish,
        "window_spent": release.window_spent,
        "units": released.units,
    }
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def span_lines(replayed: Replayed) -> Iterator[bytes]:
    """What the values of a span were charged, a line a span; ``units`` make up epsilon."""
    for charge in replayed.charges:
        line = {
            "stream": replayed.stream.name,
            "partition": replayed.partition,
            "purpose": charge.purpose,
            "start": charge.start,
            "stop": charge.stop,
            "spent": charge.units,
            "units": replayed.units,
        }
        yield orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def value_lines(replayed: Replayed) -> Iterator[bytes]:
    """The true values behind readings, in steps of the grid: raw data."""
    for position, value in enumerate(replayed.truth, replayed.start):
        line = {
            "stream": replayed.stream.name,
            "partition": replayed.partition,
            "position": position,
            "value": value,
            "step": replayed.stream.step_text,
        }
        yield orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def truth_line(released: Released) -> bytes:
    """The true counts behind a release, in the form that its sink has for counts: raw data.

    Of local reports, of which there are many kinds, only those that came. ``sums`` are there where the
    release is a sum over a span of timestamps, ``events`` (before bounding) where they were counted.
    """
    line = {
        "stream": released.stream.name,
        "timestamp": released.timestamp,
        "counts": _as_in_sink(released.counts, released.stream),
    }
    if released.truth is not released.counts:
        line["sums"] = _as_in_sink(released.truth, released.stream)
    if released.events is not None:
        line["events"] = _as_in_sink(released.events, released.stream)
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def _as_in_sink(counts: NDArray[np.int64], stream: Stream) -> list[int] | dict[str, int]:
    numbers: list[int] = counts.tolist()
    if stream.sink.counts == "array":
        return numbers
    named = zip(stream.counts.labels, numbers, strict=True)
    return {label: count for label, count in named if count or kind_of(stream).raw_events}

"""What only a whole stream can show: whether its mechanism can be made, and whether its state fits Kafka.

So these rules are for a file in which nothing else is wrong.
"""

from __future__ import annotations

from operators import mechanisms, provisioning
from operators.privacy.noise import SystemNoise
from operators.records import MAX_MESSAGE_BYTES
from operators.topology.building import streams_of
from operators.topology.model import Stream, Topology
from operators.topology.problems import Problems
from operators.topology.shapes import Section


def check_limits(topology: Topology, file: Section, problems: Problems) -> None:
    """Note every stream that could be written down, but not run."""
    for stream in topology.streams:
        section = streams_of(file)[stream.name]
        _check_mechanism(stream, section.get("mechanism"), problems)
        _check_state(stream, section, problems)


def _check_mechanism(stream: Stream, mechanism: Section, problems: Problems) -> None:
    try:
        mechanisms.build(stream.mechanism, len(stream.counts.labels), stream.sensitivity, SystemNoise())
    except ValueError as error:
        problems.add(
            mechanism.at("epsilon"),
            f"{mechanism.name('epsilon')}: {error}; raise it, or lower contributions, window, factor or the"
            " number of columns",
        )


def _check_state(stream: Stream, section: Section, problems: Problems) -> None:
    largest = provisioning.largest_state(stream)
    if largest <= MAX_MESSAGE_BYTES:
        return
    columns, window = len(stream.counts.labels), stream.mechanism.window
    wide = provisioning.WINDOW_STATE_BYTES * window < largest // 2
    part, key = (section.get("counts"), "columns") if wide else (section.get("mechanism"), "window")
    remedy = "fewer columns, shorter names, or counts: array in the sink" if wide else "a smaller window"
    problems.add(
        part.at(key),
        f"{part.name(key)}: the state of {columns} columns and a window of {window} timestamps can grow to"
        f" {largest} bytes, and must stay a Kafka message of {MAX_MESSAGE_BYTES}; expected {remedy}",
    )

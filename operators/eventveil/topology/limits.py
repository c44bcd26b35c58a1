"""What only a whole stream can show: whether its mechanism can be made, and whether its state fits Kafka.

So these rules are for a file in which nothing else is wrong.
"""

from __future__ import annotations

from dataclasses import replace

from eventveil.mechanisms import registry
from eventveil.mechanisms.sizes import largest_state, narrowest
from eventveil.model.errors import PluginRefused, UnfitSetting
from eventveil.model.topology import MechanismSettings, Option, ReadingStream, Stream, Topology
from eventveil.privacy.noise import SystemNoise
from eventveil.topology.build import all_streams_of, streams_of
from eventveil.topology.fields import Section
from eventveil.values.kinds import build as build_values


def check_limits(topology: Topology, file: Section) -> None:
    """Note every stream that could be written down, but not run."""
    for stream in topology.streams:
        section = streams_of(file)[stream.name]
        mechanism = section.get("mechanism")
        try:
            if _can_be_made(stream, section):
                _check_state(topology, stream, section)
        except Exception as error:
            if registry.plugin_of(stream.mechanism.kind) is None:
                raise
            what = error if isinstance(error, PluginRefused) else f"it failed: {error!r}; correct the class"
            mechanism.wrong("kind", str(what))
    for readings in topology.readings:
        _check_values(readings, all_streams_of(file)[readings.name].get("mechanism"))


def _check_values(stream: ReadingStream, mechanism: Section) -> None:
    try:
        build_values(stream, SystemNoise())
    except ValueError as error:
        mechanism.problems.add(
            mechanism.position, f"{mechanism.path}: {error}; change it, or the options it depends on"
        )


def _can_be_made(stream: Stream, section: Section) -> bool:
    mechanism = section.get("mechanism")
    try:
        registry.of_stream(stream, SystemNoise())
        return True
    except UnfitSetting as unfit:
        part = section.get("counts") if unfit.setting in ("columns", "per_column") else mechanism
        part.wrong(unfit.setting, str(unfit))
    except PluginRefused:
        raise
    except ValueError as error:
        mechanism.wrong(
            "epsilon", f"{error}; raise it, or lower contributions, window, factor or the number of columns"
        )
    return False


def _check_state(topology: Topology, stream: Stream, section: Section) -> None:
    # Where columns are found, as many are as there is room for: one, at least.
    stream = narrowest(stream)
    largest, limit = largest_state(stream), topology.topics.message_bytes
    if largest <= limit:
        return
    settings, columns = stream.mechanism, len(stream.columns)
    extent = next((name for name in ("span", "blocks") if name in settings.options), "window")
    length = settings.options.get(extent, settings.window)
    least = largest_state(replace(stream, mechanism=_shortest(settings)))
    wide = largest - least < largest // 2
    part, key = (section.get("counts"), "columns") if wide else (section.get("mechanism"), extent)
    remedy = "fewer columns, shorter names, or counts: array in the sink" if wide else f"a smaller {extent}"
    part.wrong(
        key,
        f"the state of {columns} columns and a {extent} of {length} timestamps can grow to {largest} bytes,"
        f" and must stay a Kafka message of {limit}; expected {remedy}",
    )


def _shortest(settings: MechanismSettings) -> MechanismSettings:
    """The same with the shortest window, span or blocks."""
    least: dict[str, Option] = {"span": 1, "blocks": "2"}
    options = {name: least.get(name, value) for name, value in settings.options.items()}
    return replace(settings, window=1, options=options)

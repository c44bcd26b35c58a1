"""Rules between the settings that say where events hold user, column and time, and which events count."""

from __future__ import annotations

from collections.abc import Iterable

from eventveil.model import fields
from eventveil.model.spelling import nearest
from eventveil.topology.columns import ColumnNames
from eventveil.topology.document import shorten
from eventveil.topology.fields import Section
from eventveil.topology.places import each_name


def check_source(file: Section, stream: Section, source: Section) -> None:
    """Rules of one source."""
    _check_user(source)
    _check_time(source)
    _check_filter(stream, source)
    _check_maps(source)


def _listed(source: Section, key: str) -> tuple[str, ...]:
    given = source.get(key)
    return () if given is None else fields.listed(given)


def _check_user(source: Section) -> None:
    listed = _listed(source, "user")
    if source.get("user_type") == "integer" and any(map(fields.is_text, listed)):
        text = next(filter(fields.is_text, listed))
        source.wrong(
            "user_type",
            f"{text} can only hold text; use string, or either if numbers and the same digits as text are"
            " one user",
        )


def _check_time(source: Section) -> None:
    listed = _listed(source, "time")
    if fields.TIME not in listed:
        return
    if listed[-1] != fields.TIME:
        source.wrong(
            "time", f"every record has {fields.TIME}, so what follows is never looked at; put it last"
        )


def _check_filter(stream: Section, source: Section) -> None:
    mechanism = stream.get("mechanism")
    given = source.get("filter")
    if given is None:
        return
    if mechanism is not None and mechanism.get("pan_private") is not None:
        source.wrong(
            "filter",
            "the state of a pan-private stream would show which events passed; put a stream processor before"
            " it (docs/topology.md), and remove filter",
        )


def _check_maps(source: Section) -> None:
    maps, columns = source.get("maps") or (), _listed(source, "column")
    for one in maps:
        if columns and one.field not in columns:
            remedy = nearest(one.field, columns) or f"maps are for fields of the column: {', '.join(columns)}"
            source.wrong("maps", f"{one.field} is not a field of the column; {remedy}")


def check_names(stream: Section, counts: Section) -> None:
    """Rules between the fields of a column and the public columns."""
    source, columns = stream.get("source"), counts.get("columns")
    if source is None or columns is None:
        return
    listed = _listed(source, "column")
    if not listed:
        return
    if columns.parts and columns.parts != len(listed):
        counts.note(
            "columns",
            f"{counts.name('columns')}.product: has {columns.parts} lists, but {source.name('column')} names"
            f" {len(listed)} field{'' if len(listed) == 1 else 's'}; give each field a list of its own",
        )
        return
    if len(listed) > 1:
        _check_combinations(counts, columns, listed)
    _check_targets(source, columns, counts.get("unknown"), listed)


def _check_combinations(counts: Section, columns: ColumnNames, listed: tuple[str, ...]) -> None:
    unknown = counts.get("unknown")
    for label in columns.labels:
        parts = label.split(fields.BETWEEN)
        if label != unknown and (len(parts) != len(listed) or not all(parts)):
            example = fields.BETWEEN.join(["news", "DE", "mobile", "new", "a", "b", "c", "d"][: len(listed)])
            counts.wrong(
                "columns",
                f"{shorten(label)} is not a combination of {len(listed)} fields; write {example}, or"
                " {product: [[...], [...]]} for all combinations",
            )
            return


def _check_targets(
    source: Section, columns: ColumnNames, unknown: str | None, listed: tuple[str, ...]
) -> None:
    """What a map makes of a field must be able to count."""
    for one in source.get("maps") or ():
        if one.field not in listed:
            continue
        place = listed.index(one.field)
        # An event whose field gets the name of the column for unknown ones counts there.
        known = {*_parts(columns.labels, len(listed), place), unknown or ""}
        for name in each_name(one):
            if name not in known:
                near = nearest(name, known) if len(known) <= 1000 else ""
                source.note(
                    "maps",
                    f"{source.name('maps')}.{one.field}: {shorten(name)} is in no column;"
                    f" {near or 'add it to the columns, or leave it out'}",
                )


def _parts(labels: Iterable[str], count: int, place: int) -> Iterable[str]:
    if count == 1:
        yield from labels
        return
    for label in labels:
        parts = label.split(fields.BETWEEN)
        if len(parts) == count:
            yield parts[place]

"""Columns that are found in the data: what that needs of the other settings of a stream."""

from __future__ import annotations

from eventveil.mechanisms import registry
from eventveil.model import fields
from eventveil.privacy.discovery import test_of
from eventveil.topology.fields import Section

#: (section, key, the values that will do, why)
_NEEDS = (
    ("timeline", "on_missing", ("wait",), "a block of timestamps is counted again after a restart"),
    ("mechanism", "adjacency", ("add-remove",), "the threshold is proved for users who are there or not"),
    ("mechanism", "noise", ("laplace",), "the sum of epsilon and delta is proved for Laplace noise"),
    ("mechanism", "rollups", (), "blocks of columns are blocks of columns that are listed"),
    ("mechanism", "pan_private", (), "columns that are not public yet would be in its state"),
    ("counts", "per_column", (), "it makes Gaussian noise smaller, and the noise is Laplace"),
    ("counts", "unknown", ("dead-letter",), "events of a column that is not found count in `other` anyway"),
    ("sink", "counts", ("object",), "columns are added later, so counts need names"),
    ("sink", "format", ("json",), "its schema says nothing of columns that are found"),
)


def check_discovery(stream: Section, counts: Section) -> None:
    """Note every setting that a stream cannot have whose columns are found."""
    mechanism, source = stream.get("mechanism"), stream.get("source")
    kind = mechanism.get("kind") if mechanism is not None else None
    growing = sorted(one for one, of in registry.KINDS.items() if of.grows)
    if kind is not None and kind not in growing:
        mechanism.wrong(
            "kind",
            f"{kind} cannot take columns that are found later; use {' or '.join(growing)}, or list the"
            " columns",
        )
    for section, key, allowed, why in _NEEDS:
        part = counts if section == "counts" else stream.get(section)
        if part is None or key not in part.positions or part.get(key) in (None, *allowed):
            continue
        remedy = f"use {' or '.join(allowed)}" if allowed and key != "unknown" else "remove it"
        part.wrong(key, f"not with columns that are found, because {why}; {remedy}")
    if counts.get("contributions") == "trusted":
        counts.wrong("contributions", "the threshold needs a bound; give a whole number")
    elif mechanism is not None:
        _check_threshold(counts, mechanism)
    column = source.get("column") if source is not None else None
    if column is not None and len(fields.listed(column)) > 1:
        source.wrong(
            "column",
            f"found {len(fields.listed(column))} fields, expected one, because columns that are found are"
            " values of one field; name one, or list the combinations as columns: {product: ...}",
        )


def _check_threshold(counts: Section, mechanism: Section) -> None:
    found = counts.get("columns").discover
    epsilon, window, bound = mechanism.get("epsilon"), mechanism.get("window"), counts.get("contributions")
    if None in (epsilon, window, bound):
        return
    try:
        test_of(epsilon.value * found.get("share").value, found.get("delta").value, bound, window)
    except ValueError as error:
        counts.note(
            "columns",
            f"{counts.name('columns')}.discover: {error}; no column would ever be found. Raise share or"
            " mechanism.epsilon, or lower contributions or the window",
        )

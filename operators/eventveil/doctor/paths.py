"""Values of a column that are paths to columns which are listed."""

from __future__ import annotations

from collections import Counter

from eventveil.advise.writing import scalar
from eventveil.model import fields
from eventveil.model.topology import Stream

#: This share of the values, by events, has to be such paths before it is worth a word.
_MANY = 0.1


def suggested_maps(stream: Stream, unlisted: Counter[str]) -> str:
    """``maps`` as YAML has it, by which paths such as ``/shoes/17`` count in the column ``shoes``; or empty.

    ``unlisted`` are texts in quotes with their numbers. What is written holds names of columns, of all but
    the one for what is not listed, and nothing of the data.
    """
    column = fields.listed(stream.source.column)
    if stream.source.maps or len(column) != 1:
        return ""
    counts = stream.counts
    other = counts.unknown_column
    named = [one for at, one in enumerate(counts.labels) if "/" not in one and at != other]
    starts = tuple(f"'/{label}{end}" for label in named for end in ("/", "'"))
    found = sum(number for value, number in unlisted.items() if value.startswith(starts))
    if not found or found < _MANY * unlisted.total():
        return ""
    values = ", ".join(f"{scalar('/' + label)}: {scalar(label)}" for label in named)
    prefixes = ", ".join(f"{scalar(f'/{label}/')}: {scalar(label)}" for label in named)
    return f"{{{scalar(column[0])}: {{values: {{{values}}}, prefixes: {{{prefixes}}}}}}}"

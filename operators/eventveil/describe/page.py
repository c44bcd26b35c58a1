"""Pages of HTML that need nothing but themselves: how a template is filled, and the style that they share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

_STYLE = Path(__file__).with_name("page.css")


def filled(
    template: Path, text: Mapping[str, str], markup: Mapping[str, str], verbatim: Collection[str] = ()
) -> str:
    """A template with ``__NAME__`` in its places; ``text`` is escaped, ``markup`` is not.

    Its place ``__STYLE__`` gets the style of all pages. A number stays on a line with its percent sign, but
    for what is ``verbatim``, which may be copied. Raises KeyError for a place that nothing is given for.
    """
    parts = {**{name: escape(value) for name, value in text.items()}, **markup}
    parts = {
        name: one if name in verbatim else one.replace(" %", "&nbsp;%") for name, one in parts.items()
    } | {"STYLE": _STYLE.read_text(encoding="utf-8")}
    # One pass: what is put in is not looked through again, whatever columns are called.
    pieces = template.read_text(encoding="utf-8").split("__")
    return "".join(parts[piece] if index % 2 else piece for index, piece in enumerate(pieces))


def paragraphs(lines: Iterable[str]) -> str:
    """A paragraph for each line, escaped."""
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def items(lines: Iterable[str]) -> str:
    """An item of a list for each line, escaped."""
    return "".join(f"<li>{escape(line)}</li>" for line in lines)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()) -> str:
    """A table whose first column names the row; ``numbers`` are the columns that are aligned to the right.

    On a narrow screen each row is a card, with the heads beside its cells.
    """
    right = set(numbers)

    def mark(index: int) -> str:
        return ' class="n"' if index in right else ""

    top = "".join(f"<th{mark(index)}>{escape(head)}</th>" for index, head in enumerate(heads))
    body = "".join(
        f"<tr><th scope=row>{escape(row[0])}</th>"
        + "".join(
            f'<td{mark(index)} data-head="{escape(heads[index])}">{escape(cell)}</td>'
            for index, cell in enumerate(row)
            if index
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"

"""The public columns of a stream: a list, a file with one column a line, or a range of whole numbers."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, product
from math import prod
from typing import Literal

import orjson

from eventveil.model.fields import BETWEEN
from eventveil.privacy.gaussian import LARGEST_DELTA, LEAST_DELTA
from eventveil.topology.document import Broken, Items, Node, Scalar, Table
from eventveil.topology.fields import (
    INVALID,
    Field,
    Invalid,
    One,
    ReadingPass,
    RecordShape,
    Section,
    Shape,
    describe,
    refused,
)
from eventveil.topology.problems import Position
from eventveil.topology.scalars import (
    DELTAS,
    LONGEST_LABEL,
    NAME_OF,
    Choice,
    Label,
    Rational,
    Schema,
    Text,
    UnfitError,
    Whole,
    found,
    label,
)

COLUMN_LIMIT = 1_000_000
#: The most lists that can be combined.
MOST_LISTS = 8
FILE_LIMIT = 64 * 1024 * 1024
_CANONICAL = re.compile(r"0|-?[1-9][0-9]{0,17}")
_COMMENT = re.compile(r"#(\s|$)")
_EXTREME = 2**53 - 1
_EXPECTED = "a list such as [ATL, BOS], {file: columns.txt}, {range: [0, 99]} or {discover: {delta: 1e-9}}"
_FILE = RecordShape(
    (
        Field(
            "file",
            One(Text("the path of a file with one column a line")),
            "file with one column a line; lines that begin with # and a space are comments",
            True,
        ),
        Field(
            "type", One(Choice(("string", "integer"))), "JSON type of the field in events.", default="string"
        ),
    ),
    title="columns-file",
)


#: Of names that are found, unless the topology says otherwise.
LONGEST_FOUND = 64
_DISCOVER = RecordShape(
    (
        Field(
            "delta", One(Rational(1, LEAST_DELTA, 31, DELTAS)),
            "the probability with which a window may show the column of a single user, such as 1e-9", True,
        ),
        Field(
            "most", One(Whole(1, 100_000)),
            "How many columns are found at most; fewer, where no more fit into the state (see check).",
            default="1000",
        ),
        Field(
            "share", One(Rational(1)),
            "The share of the stream's epsilon for finding columns; the mechanism has the rest.",
            default="0.1",
        ),
        Field(
            "other", One(Label()), "Name of the column that counts events whose own is not found (yet).",
            default="other",
        ),
        Field(
            "longest", One(Whole(1, LONGEST_LABEL)),
            "Characters of a column's name at most; events with longer ones are dead letters.",
            default=str(LONGEST_FOUND),
        ),
        Field(
            "forget", One(Whole(1, 1000)),
            "After that many windows in a row in which the releases of a column add up to less than their"
            " errors, it is forgotten. Without it columns stay.",
        ),
    ),
    title="columns-discover",
)  # fmt: skip


@dataclass(frozen=True)
class ColumnNames:
    """Labels in order, and the JSON type of the field that holds them.

    ``parts``: the number of lists whose product they are, 0 if they are none. ``discover``: how columns are
    found, of a stream that has only the one for others before that.
    """

    labels: tuple[str, ...]
    type: Literal["string", "integer"] = "string"
    parts: int = 0
    discover: Section | None = None


def columns_digest(labels: Iterable[str]) -> str:
    """SHA-256, in hexadecimal, of the canonical JSON array of the column labels in their order."""
    return hashlib.sha256(orjson.dumps(list(labels))).hexdigest()


class ColumnsShape(Shape):
    """Between 1 and 1,000,000 different columns."""

    def read(self, node: Node, name: str, reading: ReadingPass) -> ColumnNames | Invalid:
        """The columns; a file's path is relative to the topology."""
        if isinstance(node, Items):
            return _from_list(node, name, reading)
        if isinstance(node, Table) and "range" in node.entries:
            return _from_range(node, name, reading)
        if isinstance(node, Table) and "product" in node.entries:
            return _from_product(node, name, reading)
        if isinstance(node, Table) and "discover" in node.entries:
            return _discovered(node, name, reading)
        if isinstance(node, Table) and node.entries:
            return _from_file(node, name, reading)
        return refused(node, name, _EXPECTED, reading)

    def schema(self) -> Schema:
        """Five forms."""
        bound = Whole(-_EXTREME, _EXTREME).schema()
        numbers = {
            NAME_OF: "columns-range",
            "type": "object",
            "properties": {"range": {"type": "array", "items": bound, "minItems": 2, "maxItems": 2}},
            "required": ["range"],
            "additionalProperties": False,
        }
        listed = {
            "type": "array",
            "items": Label().schema(),
            "minItems": 1,
            "maxItems": COLUMN_LIMIT,
            "uniqueItems": True,
        }
        product = {
            NAME_OF: "columns-product",
            "type": "object",
            "properties": {
                "product": {
                    "description": "Names for each field of the column: all combinations, such as news|DE.",
                    "type": "array",
                    "items": {"anyOf": [listed, _FILE.schema(), numbers]},
                    "minItems": 2,
                    "maxItems": MOST_LISTS,
                },
                "also": {"description": "Further columns, such as one for unknown combinations.", **listed},
            },
            "required": ["product"],
            "additionalProperties": False,
        }
        found = {
            NAME_OF: "columns-found",
            "type": "object",
            "properties": {
                "discover": {
                    "description": "Columns are found in the data: names that many users share.",
                    **_DISCOVER.schema(),
                }
            },
            "required": ["discover"],
            "additionalProperties": False,
        }
        return {"anyOf": [listed, _FILE.schema(), numbers, product, found]}


def _refuse(node: Table, known: set[str], name: str, why: str, reading: ReadingPass) -> set[str]:
    """The keys beside those that are ``known``; each is a problem."""
    unknown = node.entries.keys() - known
    for key in unknown:
        reading.problems.add(node.keys[key], f"unknown key {key!r} in {name}; {why}")
    return unknown


def _discovered(node: Table, name: str, reading: ReadingPass) -> ColumnNames | Invalid:
    """Columns that are found in the data: before that, all events count in one."""
    unknown = _refuse(node, {"discover"}, name, "discover cannot be combined with other keys", reading)
    section = _DISCOVER.read(node.entries["discover"], f"{name}.discover", reading)
    if isinstance(section, Invalid) or unknown:
        return INVALID
    if any(section.get(one.name) is None for one in _DISCOVER.fields if one.name != "forget"):
        return INVALID
    delta, share = section.get("delta"), section.get("share")
    if delta.value > LARGEST_DELTA:
        section.wrong(
            "delta",
            f"found {delta.text}, expected at most {float(LARGEST_DELTA):g}; it is the probability that a"
            " window shows the column of a single user: choose it far below 1/n for n users, such as"
            " 1e-9",
        )
    if share.value >= 1:
        section.wrong(
            "share",
            f"found {share.text}, expected less than 1, because the mechanism needs the rest; 0.1 is a good"
            " start",
        )
    if delta.value > LARGEST_DELTA or share.value >= 1:
        return INVALID
    return ColumnNames((section.get("other"),), discover=section)


def _from_list(node: Items, name: str, reading: ReadingPass) -> ColumnNames | Invalid:
    if not node.items:
        return reading.invalid(node.position, f"{name}: found an empty list, expected at least one column")
    first: dict[str, Position] = {}
    integers: list[Scalar] = []
    valid = True
    for item in node.items:
        text = _read_label(item, name, reading)
        if text is None:
            valid = False
            continue
        if (
            isinstance(item, Scalar)
            and not item.expanded
            and item.type == "integer"
            and _CANONICAL.fullmatch(text)
        ):
            integers.append(item)
        if text in first:
            reading.problems.add(
                item.position,
                f"{name}: column {describe(item)} is listed a second time,"
                f" first on line {first[text].line}; remove one",
            )
            valid = False
        first.setdefault(text, item.position)
    if not valid:
        return INVALID
    if integers and len(integers) < len(node.items):
        return reading.invalid(
            integers[0].position,
            f"{name}: found {found(integers[0])} in a list of texts, expected one type;"
            " put it in quotes if events hold it as text",
        )
    return ColumnNames(tuple(first), "integer" if integers else "string")


def _read_label(item: Node, name: str, reading: ReadingPass) -> str | None:
    if isinstance(item, Broken):
        return None
    try:
        if not isinstance(item, Scalar):
            raise UnfitError("the name of a column")
        return label(item)
    except UnfitError as unfit:
        reading.problems.add(
            item.position, f"{name}: found {unfit.found or describe(item)}, expected {unfit.expected}"
        )
        return None


def _from_product(node: Table, name: str, reading: ReadingPass) -> ColumnNames | Invalid:
    """All combinations of the names in some lists, the first list varying slowest, and then the others."""
    known = {"product", "also"}
    unknown = _refuse(node, known, name, "with product the only other key is `also`", reading)
    lists = node.entries["product"]
    if not isinstance(lists, Items) or not 2 <= len(lists.items) <= MOST_LISTS:
        return reading.invalid(
            lists.position,
            f"{name}.product: found {describe(lists)}, expected 2 to {MOST_LISTS} lists of names, one for"
            " each field of the column",
        )
    read = [ColumnsShape().read(one, f"{name}.product", reading) for one in lists.items]
    also = node.entries.get("also")
    others = ColumnNames(()) if also is None else ColumnsShape().read(also, f"{name}.also", reading)
    if unknown or isinstance(others, Invalid) or any(isinstance(one, Invalid) for one in read):
        return INVALID
    parts = [one.labels for one in read if isinstance(one, ColumnNames)]
    return _combined(parts, others.labels, lists, name, reading)


def _combined(
    parts: list[tuple[str, ...]], others: tuple[str, ...], node: Items, name: str, reading: ReadingPass
) -> ColumnNames | Invalid:
    for one in chain.from_iterable(parts):
        if BETWEEN in one:
            return reading.invalid(
                node.position,
                f"{name}.product: {one[:60]!r} holds {BETWEEN}, which stands between the parts of a"
                " combination; give it another name (source.maps renames what events hold)",
            )
    number = prod(map(len, parts)) + len(others)
    if number > COLUMN_LIMIT:
        return reading.invalid(
            node.position,
            f"{name}.product: makes {number} columns, expected at most {COLUMN_LIMIT}; shorten the lists",
        )
    labels = tuple(BETWEEN.join(combination) for combination in product(*parts))
    twice = {*labels} & {*others}
    if twice or max(map(len, labels)) > LONGEST_LABEL:
        wrong = f"{min(twice)!r} is a combination already" if twice else "a name is too long"
        return reading.invalid(node.position, f"{name}.product: {wrong}; correct the lists")
    return ColumnNames((*labels, *others), parts=len(parts))


def _from_range(node: Table, name: str, reading: ReadingPass) -> ColumnNames | Invalid:
    unknown = _refuse(node, {"range"}, name, "range cannot be combined with other keys", reading)
    pair = node.entries["range"]
    bound = One(Whole(-_EXTREME, _EXTREME))
    if not isinstance(pair, Items) or len(pair.items) != 2:
        return reading.invalid(
            pair.position,
            f"{name}.range: found {describe(pair)}, expected the first and the last number, as [0, 99]",
        )
    low, high = (bound.read(item, f"{name}.range", reading) for item in pair.items)
    if low is INVALID or high is INVALID or unknown:
        return INVALID
    if not low <= high < low + COLUMN_LIMIT:
        return reading.invalid(
            pair.position,
            f"{name}.range: found {low} to {high}, expected the lower number first"
            f" and at most {COLUMN_LIMIT} columns",
        )
    return ColumnNames(tuple(str(number) for number in range(low, high + 1)), "integer")


def _from_file(node: Table, name: str, reading: ReadingPass) -> ColumnNames | Invalid:
    section = _FILE.read(node, name, reading)
    if not isinstance(section, Section) or section.get("file") is None or section.get("type") is None:
        return INVALID
    path = os.path.join(reading.directory, section.get("file"))
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_LIMIT + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        section.note("file", f"{name}.file: {path} cannot be read ({why}); correct the path or its rights")
        return INVALID
    if len(data) > FILE_LIMIT:
        section.note("file", f"{name}.file: {path} is larger than 64 MiB; list fewer columns")
        return INVALID
    labels = _labels_of_file(data, path, section.get("type"), reading)
    if labels is None:
        return INVALID
    if not 1 <= len(labels) <= COLUMN_LIMIT:
        section.note("file", f"{name}.file: {path} lists {len(labels)} columns, expected 1 to {COLUMN_LIMIT}")
        return INVALID
    return ColumnNames(tuple(labels), section.get("type"))


def _labels_of_file(data: bytes, path: str, kind: str, reading: ReadingPass) -> dict[str, int] | None:
    """Labels with their line numbers; blank lines and comments, # and a space, are passed over."""
    labels: dict[str, int] = {}
    valid = True
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        mistake: str | None
        try:
            text = line.decode().strip()
        except UnicodeDecodeError:
            text, mistake = "?", "is not UTF-8; save the file as UTF-8"
        else:
            mistake = _mistake(text, kind, labels)
        if _COMMENT.match(text):
            continue
        if mistake:
            reading.problems.add(Position(number, 1), f"column {text[:60]!r} {mistake}", path)
            valid = False
        elif text:
            labels[text] = number
    return labels if valid else None


def _mistake(text: str, kind: str, labels: dict[str, int]) -> str | None:
    if text in labels:
        return f"is listed a second time, first on line {labels[text]}; remove one"
    if text.startswith("#"):
        return "may be a comment or a name; put a space after # for a comment, or list the columns in quotes"
    if len(text) > LONGEST_LABEL:
        return f"has {len(text)} characters; at most {LONGEST_LABEL} are accepted"
    if kind == "integer" and text and not _CANONICAL.fullmatch(text):
        return "is not a whole number such as 0, 7 or -12; write one a line, or use type: string"
    return None

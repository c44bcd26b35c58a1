"""A YAML text as a tree that keeps the position and the exact text of every value.

Only the events of the YAML parser are used, in one pass and without recursion, so that a hostile file
costs no more than its own length: nesting is bounded, anchors and aliases are mistakes and never expand.
Types follow the core schema of YAML 1.2: ``no`` is a text, ``true`` is a boolean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

import yaml

from eventveil.topology.problems import START, Position, Problems

SIZE_LIMIT = 1024 * 1024
DEPTH_LIMIT = 16
ScalarType = Literal["nothing", "boolean", "integer", "number", "text"]

_NOT_PRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CORE_SCHEMA: tuple[tuple[ScalarType, re.Pattern[str]], ...] = (
    ("nothing", re.compile(r"(~|null|Null|NULL)?")),
    ("boolean", re.compile(r"true|True|TRUE|false|False|FALSE")),
    ("integer", re.compile(r"[-+]?[0-9]+")),
    (
        "number",
        re.compile(
            r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
            r"|0o[0-7]+|0x[0-9a-fA-F]+"
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value. ``expanded``: it came from ``${...}`` and may be text or number, as its place needs.

    A ``secret`` value is never shown in a message.
    """

    position: Position
    text: str
    quoted: bool = False
    expanded: bool = False
    secret: bool = field(default=False, compare=False)

    @property
    def type(self) -> ScalarType:
        """The type by the core schema of YAML 1.2; quoted values are text."""
        if self.quoted:
            return "text"
        return next((name for name, pattern in _CORE_SCHEMA if pattern.fullmatch(self.text)), "text")

    def __repr__(self) -> str:
        return f"Scalar({self.position}, {'...' if self.secret else self.text!r})"


@dataclass(frozen=True, slots=True)
class Broken:
    """A value whose mistake has been reported already; readers pass over it in silence."""

    position: Position


@dataclass(slots=True)
class Items:
    """A YAML list."""

    position: Position
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Table:
    """A YAML mapping; ``keys`` holds the position of each key."""

    position: Position
    entries: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Position] = field(default_factory=dict)


Node = Scalar | Broken | Items | Table


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not been seen, with the key that waits for its value."""

    node: Items | Table
    key: Scalar | Broken | None = None
    after_key: bool = False


def compose(
    data: bytes, problems: Problems, needs: str = "a topology needs version, name and streams"
) -> Node | None:
    """The tree of a YAML file's bytes, or None when a mistake makes it unreadable as a whole.

    Every mistake is added to ``problems``. ``needs`` says what an empty file lacks.
    """
    text = _decode(data, problems)
    if text is None or not _plain_text(text, problems):
        return None
    try:
        return _Composer(problems, needs).compose(text)
    except yaml.MarkedYAMLError as error:
        problems.add(_where(error), f"not YAML: {_what(error)}{_hint(error, text)}")
    except yaml.YAMLError as error:
        problems.add(START, f"not YAML: {error}")
    except _RefusedError as refused:
        problems.add(refused.position, refused.message)
    return None


class _Mark(Protocol):
    """A place as either parser of PyYAML gives it, from 0."""

    line: int
    column: int


class _RefusedError(Exception):
    """The file is refused as a whole."""

    def __init__(self, position: Position, message: str) -> None:
        super().__init__(message)
        self.position, self.message = position, message


class _Composer:
    """Builds the tree from parser events."""

    def __init__(self, problems: Problems, needs: str) -> None:
        self._problems, self._needs = problems, needs
        self._stack: list[_Open] = []
        self._root: Node | None = None
        self._documents = 0

    def compose(self, text: str) -> Node | None:
        for event in _events(text):
            self._take(event)
        if self._root is None or (isinstance(self._root, Scalar) and self._root.type == "nothing"):
            raise _RefusedError(START, f"the file is empty; {self._needs}")
        return self._root

    def _take(self, event: yaml.Event) -> None:
        position = _position(event.start_mark)
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise _RefusedError(
                        position, "a second YAML document starts here; keep one topology per file"
                    )
            case yaml.ScalarEvent():
                self._tidy(event, position)
                self._place(
                    Scalar(position, event.value, quoted=event.style is not None and event.style != "")
                )
            case yaml.AliasEvent():
                self._problems.add(
                    position,
                    "a YAML alias (*) is not accepted; write the value out, or quote it if it is text",
                )
                self._place(Broken(position))
            case yaml.SequenceStartEvent():
                self._tidy(event, position)
                self._open(Items(position))
            case yaml.MappingStartEvent():
                self._tidy(event, position)
                self._open(Table(position))
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._place(self._stack.pop().node)

    def _tidy(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent, position: Position) -> None:
        """Report what a topology has no use for and a hostile file has: anchors and tags."""
        if event.anchor is not None:
            self._problems.add(
                position, "a YAML anchor (&) is not accepted; remove it, or quote the value if it is text"
            )
        if event.tag is not None and event.tag != "!":
            self._problems.add(
                position, "a YAML tag (!) is not accepted; remove it, or quote the value if it is text"
            )

    def _open(self, node: Items | Table) -> None:
        if len(self._stack) >= DEPTH_LIMIT:
            raise _RefusedError(
                node.position, f"nested more than {DEPTH_LIMIT} levels deep; a topology needs fewer"
            )
        self._stack.append(_Open(node))

    def _place(self, node: Node) -> None:
        """Put a complete node where it belongs: the root, a list, or a key or value of a mapping."""
        if not self._stack:
            self._root = node
            return
        top = self._stack[-1]
        if isinstance(top.node, Items):
            top.node.items.append(node)
        elif not top.after_key:
            top.key, top.after_key = self._key(node), True
        else:
            if isinstance(top.key, Scalar):
                self._set(top.node, top.key, node)
            top.key, top.after_key = None, False

    def _key(self, node: Node) -> Scalar | Broken:
        if isinstance(node, Scalar | Broken):
            return node
        self._problems.add(node.position, "a list or mapping stands where a key is expected; a key is a word")
        return Broken(node.position)

    def _set(self, table: Table, key: Scalar, value: Node) -> None:
        first = table.keys.get(key.text)
        if first is not None:
            self._problems.add(
                key.position,
                f"key {shorten(key.text)} is set a second time, first on line {first.line}; keep one",
            )
            return
        table.entries[key.text] = value
        table.keys[key.text] = key.position


def shorten(text: str) -> str:
    """A text in quotes for a message, cut to 60 characters."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _events(text: str) -> Iterator[yaml.Event]:
    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    yield from yaml.parse(text, Loader=loader)


def _decode(data: bytes, problems: Problems) -> str | None:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        column = len(before.rpartition(b"\n")[2].decode("utf-8", "replace")) + 1
        problems.add(
            Position(before.count(b"\n") + 1, column),
            f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8",
        )
        return None


def _plain_text(text: str, problems: Problems) -> bool:
    """Whether the text can be given to the YAML parser: no control characters, no tabs as indentation."""
    bad = _NOT_PRINTABLE.search(text)
    if bad:
        position = Position(
            text.count("\n", 0, bad.start()) + 1, bad.start() - text.rfind("\n", 0, bad.start())
        )
        problems.add(position, f"character U+{ord(bad.group()):04X} is not accepted in YAML; remove it")
        return False
    clean = True
    for number, line in enumerate(text.split("\n"), 1):
        indentation = line[: len(line) - len(line.lstrip(" \t"))]
        if "\t" in indentation and line.strip():
            problems.add(
                Position(number, indentation.index("\t") + 1),
                "a tab is used as indentation; YAML needs spaces, put two spaces for each level",
            )
            clean = False
    return clean


def _position(mark: _Mark | None) -> Position:
    return Position(mark.line + 1, mark.column + 1) if mark is not None else START


def _where(error: yaml.MarkedYAMLError) -> Position:
    return _position(error.problem_mark or error.context_mark)


def _what(error: yaml.MarkedYAMLError) -> str:
    started = f" from line {error.context_mark.line + 1}" if error.context_mark else ""
    return ", ".join(
        part for part in (error.problem, f"{error.context}{started}" if error.context else None) if part
    )


def _hint(error: yaml.MarkedYAMLError, text: str) -> str:
    lines = text.split("\n")
    number = _where(error).line
    line = lines[number - 1] if number <= len(lines) else ""
    if "${" in line:
        return "; inside [ ] and { } put ${...} in quotes"
    if "mapping values are not allowed" in (error.problem or ""):
        return "; check the indentation, and quote a value that contains ': '"
    return "; check brackets, quotes and indentation near here"

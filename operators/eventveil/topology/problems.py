"""Mistakes in a topology file: where each is, what is wrong, what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from eventveil.errors import EventveilError

SHOWN = 100


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a text file; line and column count from 1, columns in characters."""

    line: int
    column: int


START = Position(1, 1)


def nearest(word: str, known: Iterable[str]) -> str:
    """``did you mean`` the known word that is nearest to this one ``?``; empty if none is near."""
    near = difflib.get_close_matches(word[:100], sorted(known), 1, 0.65)
    return f"did you mean {near[0]}?" if near else ""


def suggestion(word: str, known: Collection[str]) -> str:
    """The remedy for an unknown word: the nearest known one, or all of them."""
    return nearest(word, known) or f"known: {', '.join(sorted(known)) or 'none'}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake. Its text is ``path:line:column: what is wrong, what would be right``."""

    path: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.message}"


class TopologyInvalid(EventveilError):
    """A topology file has mistakes; ``problems`` holds all of them in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [str(problem) for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"and {len(self.problems) - SHOWN} more mistakes")
        super().__init__("\n".join(lines))


class Problems:
    """Collects the mistakes of one topology file and of the column files that it names."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._found: set[Problem] = set()

    def add(self, position: Position, message: str, path: str | None = None) -> None:
        """Note a mistake at ``position`` of ``path`` (default: the topology file)."""
        self._found.add(Problem(path or self.path, position.line, position.column, message))

    @property
    def count(self) -> int:
        """How many have been found."""
        return len(self._found)

    def raise_if_any(self) -> None:
        """Raise TopologyInvalid with all mistakes, those of the topology file first, in file order."""
        if self._found:
            raise TopologyInvalid(
                sorted(self._found, key=lambda p: (p.path != self.path, p.path, p.line, p.column, p.message))
            )

"""Mistakes in a topology file: where each is, what is wrong, what would be right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eventveil.model.errors import EventveilError

SHOWN = 100


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a text file; line and column count from 1, columns in characters."""

    line: int
    column: int


START = Position(1, 1)
#: Of a file that cannot be read.
NOWHERE = Position(0, 0)


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake. Its text is ``path:line:column: what is wrong, what would be right``.

    Line and column are 0, and left out of the text, where the file cannot be read.
    """

    path: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        place = f":{self.line}:{self.column}" if self.line else ""
        return f"{self.path}{place}: {self.message}"


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

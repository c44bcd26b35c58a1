"""Finds files of tests, runs their tests, and says how each went."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eventveil.decoding.details import shown_detail
from eventveil.model.errors import EventveilError
from eventveil.testing.comparing import Mismatch, differences
from eventveil.testing.document import SUFFIX
from eventveil.testing.model import Case, Played, TestFile
from eventveil.testing.playing import Unplayable

#: At most this many events of a test that failed are listed.
_TOLD = 20


class NoTests(EventveilError):
    """There is nothing to be run at a place that was named."""


def find(places: tuple[str, ...]) -> list[str]:
    """The files of tests that are named, beside a named topology, or in a named folder; each once, sorted.

    Raises NoTests where there is none.
    """
    return sorted(dict.fromkeys(path for place in places for path in _at(place)))


def _at(place: str) -> list[str]:
    if os.path.isdir(place):
        found = [str(path) for path in Path(place).rglob(f"*{SUFFIX}")]
        if not found:
            raise NoTests(f"{place}: no file in this folder ends in {SUFFIX}")
        return found
    if place.endswith(SUFFIX):
        return [place]
    beside = f"{os.path.splitext(place)[0]}{SUFFIX}"
    if not os.path.exists(place):
        raise NoTests(f"{place}: there is no such file or folder")
    if not os.path.exists(beside):
        raise NoTests(f"{place}: it has no tests; write them to {beside} (docs/testing.md)")
    return [beside]


@dataclass(frozen=True, slots=True)
class Result:
    """How a test went. ``broken``: it could not be run to its end, and why."""

    file: TestFile
    case: Case[Any]
    seconds: float
    differences: tuple[Mismatch, ...] = ()
    broken: str | None = None
    played: Played | None = None

    @property
    def passed(self) -> bool:
        """Whether everything was as expected."""
        return self.broken is None and not self.differences

    def lines(self) -> Iterator[str]:
        """What is wrong, for people: every difference with its place, then what became of events."""
        if self.broken is not None:
            yield self.broken
        for one in self.differences:
            yield f"{self.file.path}:{one.position.line}: {one}"
        if self.differences and self.played is not None:
            yield from _fates(self)


def run(file: TestFile, case: Case[Any]) -> Result:
    """Play a test and compare."""
    begun = time.perf_counter()
    played: Played | None = None
    broken: str | None = None
    try:
        played = case.play(case)
    except Unplayable as error:
        broken = f"{file.path}:{error.position.line}: {error.message}"
    except Exception as error:  # a plug-in may raise anything
        kind, what = case.stream.mechanism.kind, str(error) or repr(error)
        broken = f"{file.path}:{case.position.line}: {kind} cannot be run with the noise off: {what}"
    found = () if played is None else tuple(differences(case, played))
    return Result(file, case, time.perf_counter() - begun, found, broken, played)


def _fates(result: Result) -> Iterator[str]:
    """The events that do not count, with the lines where they stand."""
    case, played = result.case, result.played
    assert played is not None
    told = [*played.dead_letters.items(), *played.left_out.items(), *played.unreadable.items()]
    for (event, reason), number in sorted(told)[:_TOLD]:
        place = f"{result.file.path}:{case.events[event - 1].position.line}"
        times = f" {number} times" if number > 1 else ""
        detail = f": {shown_detail(reason, played.details[event])}" if event in played.details else ""
        yield f"{place}: event {event} was {reason}{times}{detail}"
    if len(told) > _TOLD:
        yield f"and {len(told) - _TOLD} more events"

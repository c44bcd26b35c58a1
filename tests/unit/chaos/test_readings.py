"""The verifier of value streams lets sound logs pass, and names what is made wrong with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.readings import ReadingLogs, ReadingRules, verify_readings
from tests.chaos.verifier import NOISE, Record

RULES = ReadingRules("levels", partitions=1, maximum=100, held=2, max_bytes=50)
KEY = b"levels"
VALUES: list[bytes | None] = [b'{"value": 5}', None, b'{"value": 70}', b'{"value": 900}', b'{"value": "3"}']
#: Cut at 60; the first two are held back.
READINGS = [None, None, 60 + 3 * NOISE, 60 - 4 * NOISE, 7 * NOISE]


def shown(position: int, **changes: Any) -> bytes:
    reading = {"partition": 0, "position": position, "offset": position, "reading": READINGS[position]}
    return json.dumps({**reading, **changes}).encode()


def span(start: int, stop: int, **changes: Any) -> bytes:
    fields = {"stream": "levels", "partition": 0, "start": start, "stop": stop, "spent": 1, "units": 1}
    return json.dumps({**fields, **changes}).encode()


def state() -> bytes:
    pending = {"offsets": [0, 1, 2, 3, 4], "readings": READINGS}
    return json.dumps({"partition": 0, "position": 5, "pending": pending}).encode()


def logged(values: list[bytes | None], key: bytes = KEY) -> list[Record]:
    return [Record(0, offset, 0, key, value) for offset, value in enumerate(values)]


def sound() -> ReadingLogs:
    return ReadingLogs(
        raw=logged(VALUES),
        sink=logged([shown(position) for position in range(5)]),
        ledger=logged([span(0, 2), span(2, 18)]),
        state_changelog=logged([state()]),
    )


def with_sink(logs: ReadingLogs, *records: Record) -> ReadingLogs:
    return replace(logs, sink=[*logs.sink, *records])


def changed(position: int, **changes: Any) -> Callable[[ReadingLogs], ReadingLogs]:
    def change(logs: ReadingLogs) -> ReadingLogs:
        sink = list(logs.sink)
        sink[position] = replace(sink[position], value=shown(position, **changes))
        return replace(logs, sink=sink)

    return change


CORRUPTIONS: dict[str, tuple[Callable[[ReadingLogs], ReadingLogs], str]] = {
    "a reading is missing": (lambda logs: replace(logs, sink=logs.sink[:-1]), "odd from the 4th on"),
    "a reading is there twice": (
        lambda logs: with_sink(logs, replace(logs.sink[4], offset=5)),
        "odd from the 5th on",
    ),
    "a reading is of another offset": (changed(3, offset=9), "is not of offset 3"),
    "a reading is of another value": (changed(4, reading=1 + 7 * NOISE), "not 0 cut at 60"),
    "a value is not held back": (changed(1, reading=5), "others than the first 2 values are held back"),
    "a second draw, aborted": (
        lambda logs: with_sink(logs, Record(0, 5, 0, KEY, shown(4, reading=8 * NOISE), committed=False)),
        "position (0, 4) shows 2 draws",
    ),
    "a reading that nobody decided": (changed(2, reading=60 + 9 * NOISE), "was never decided"),
    "a decision that was never committed": (
        lambda logs: replace(logs, state_changelog=[replace(logs.state_changelog[0], committed=False)]),
        "was never decided",
    ),
    "two decisions": (
        lambda logs: replace(
            logs,
            state_changelog=[
                *logs.state_changelog,
                Record(0, 1, 0, KEY, state().replace(str(7 * NOISE).encode(), str(8 * NOISE).encode())),
            ],
        ),
        "position (0, 4) was decided twice",
    ),
    "a span is charged twice": (
        lambda logs: replace(logs, ledger=[*logs.ledger, Record(0, 2, 0, KEY, span(2, 18))]),
        "a span from 2 is charged after one up to 18",
    ),
    "a span is not charged": (
        lambda logs: replace(logs, ledger=logs.ledger[:1]),
        "5 readings are public and 2 positions charged",
    ),
    "a span is too dear": (
        lambda logs: replace(logs, ledger=logged([span(0, 2, spent=2), span(2, 18)])),
        "the span from 0 costs 2",
    ),
}


def test_a_sound_log_has_no_violation() -> None:
    report = verify_readings(RULES, sound())
    assert report.violations == []
    assert (report.produced, report.readings, report.aborted) == (5, 5, 0)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_each_corruption_is_named(name: str) -> None:
    corrupt, words = CORRUPTIONS[name]
    violations = verify_readings(RULES, corrupt(sound())).violations
    assert [one for one in violations if words in one], violations

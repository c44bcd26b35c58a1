"""The verifier finds nothing wrong with a sound log, and names each thing that is made wrong with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.verifier import NOISE, Logs, Record, Rules, judge, verify

RULES = Rules(
    stream="places",
    source="raw",
    partitions=1,
    columns=["north", "south"],
    origin=1_000,
    interval=10,
    lateness=5,
    max_ahead=10,
    max_bytes=100,
    window=2,
    first=1,
)
UNITS = 2 * RULES.window * 2**20
KEY = b"places"


def event(user: str, place: str, time: int) -> bytes:
    return json.dumps({"user": user, "place": place, "time": time}).encode()


def raw() -> list[Record]:
    """Timestamp 1: ann north, bob south and once more; 2: nothing; 3: ann south. One late, one unreadable."""
    values = [
        (1_001, event("ann", "north", 1_000)),
        (1_002, event("bob", "south", 1_001)),
        (1_003, event("bob", "north", 1_002)),
        (1_003, b"{"),
        (1_015, event("eve", "north", 1_009)),
        (1_021, event("ann", "south", 1_021)),
    ]
    return [Record(0, offset, time, b"k", value) for offset, (time, value) in enumerate(values)]


def release(timestamp: int, north: int, south: int, **changes: Any) -> dict[str, Any]:
    made = {
        "timestamp": timestamp,
        "counts": {"north": north, "south": south},
        "fresh": True,
        "units": UNITS,
        "spent": {"test": 0, "publish": UNITS // 2},
        "window_spent": UNITS // 2 if timestamp == 1 else UNITS,
    }
    return {**made, **changes}


def releases() -> list[dict[str, Any]]:
    return [release(1, 1 + 7 * NOISE, 1), release(2, -NOISE, 0), release(3, 0, 1 + NOISE)]


def logs(published: list[dict[str, Any]] | None = None) -> Logs:
    """The topics after these releases, each decided and published in transactions of its own."""
    values = [json.dumps(one).encode() for one in published or releases()]
    stamps = [one["timestamp"] for one in published or releases()]
    changelog = []
    for number, (timestamp, value) in enumerate(zip(stamps, values, strict=True)):
        decided = {"next": timestamp + 1, "pending": [value.decode()]}
        changelog.append(Record(0, 4 * number, 0, KEY, json.dumps(decided).encode()))
        done = {"next": timestamp + 1, "pending": []}
        changelog.append(Record(0, 4 * number + 2, 0, KEY, json.dumps(done).encode()))
    return Logs(
        raw=raw(),
        sink=[Record(0, offset, 0, KEY, value) for offset, value in enumerate(values)],
        dead=[letter(3, "not-json"), letter(4, "late")],
        ledger=[entry(timestamp, value) for timestamp, value in zip(stamps, values, strict=True)],
        ledger_changelog=changelog,
        counting_changelog=[progress(1, 3), progress(4, 6)],
    )


def letter(offset: int, reason: str) -> Record:
    headers = {"stream": "places", "topic": "raw", "partition": "0", "offset": str(offset), "reason": reason}
    encoded = {f"eventveil.{name}": value.encode() for name, value in headers.items()}
    return replace(raw()[offset], offset=100 + offset, headers=encoded)


def entry(timestamp: int, value: bytes) -> Record:
    fields = {"stream": "places", "timestamp": timestamp, "digest": hashlib.sha256(value).hexdigest()}
    return Record(0, timestamp, 0, KEY, json.dumps(fields).encode())


def progress(following: int, judged: int) -> Record:
    return Record(0, following, 0, KEY, json.dumps({"next": following, "judged": judged}).encode())


def test_a_sound_log_is_not_accused_of_anything() -> None:
    report = verify(RULES, logs())
    assert report.violations == []
    assert (report.timestamps, report.produced) == (3, 6)
    assert (report.counted, report.bounded, report.dead, report.aborted) == (3, 1, 2, 0)


def test_aborted_copies_of_the_same_bytes_are_allowed() -> None:
    sound = logs()
    aborted = replace(sound.sink[1], offset=50, committed=False)
    letter_again = replace(sound.dead[0], offset=51, committed=False)
    report = verify(RULES, replace(sound, sink=[*sound.sink, aborted], dead=[*sound.dead, letter_again]))
    assert (report.violations, report.aborted) == ([], 1)


def test_the_bound_and_the_order_of_a_re_keyed_stream_are_its_own() -> None:
    moved = replace(raw()[1], partition=1, offset=0)
    scattered = replace(logs(), raw=[one for one in raw() if one.offset != 1] + [moved])
    rekeyed = replace(RULES, rekeyed=True)
    assert verify(rekeyed, scattered).violations == []
    (told,) = verify(replace(rekeyed, contributions=2), scattered).violations
    assert "timestamp 1 counts" in told
    keyed = verify(RULES, scattered).violations
    assert any("should be a dead letter, wrong-partition" in violation for violation in keyed)


def with_release(number: int, **changes: Any) -> Logs:
    changed = releases()
    changed[number].update(changes)
    return logs(changed)


def adjacent(sound: Logs) -> Logs:
    """No commit marker between the decision and its publication."""
    moved = [replace(record, offset=number) for number, record in enumerate(sound.ledger_changelog)]
    return replace(sound, ledger_changelog=moved)


def decided_again(sound: Logs) -> Logs:
    other = {"next": 2, "pending": [json.dumps(release(1, 1, 1 + NOISE))]}
    again = Record(0, 1, 0, KEY, json.dumps(other).encode())
    return replace(sound, ledger_changelog=[sound.ledger_changelog[0], again, *sound.ledger_changelog[1:]])


def another_draw(committed: bool) -> Callable[[Logs], Logs]:
    def change(sound: Logs) -> Logs:
        value = json.dumps(release(1, 1 + 8 * NOISE, 1)).encode()
        return replace(sound, sink=[Record(0, 90, 0, KEY, value, committed=committed), *sound.sink])

    return change


CORRUPTIONS: dict[str, tuple[Callable[[Logs], Logs], str]] = {
    "a missing timestamp": (lambda _: logs([releases()[0], releases()[2]]), "2 to 2 are missing"),
    "a repeated timestamp": (
        lambda sound: replace(sound, sink=[*sound.sink, sound.sink[2]]),
        "timestamp 3 is published again",
    ),
    "timestamps out of order": (
        lambda sound: replace(sound, sink=[sound.sink[1], sound.sink[0], sound.sink[2]]),
        "timestamp 1 is published again",
    ),
    "an end before the events": (lambda _: logs(releases()[:2]), "1 timestamps with events are not released"),
    "two draws, one aborted": (another_draw(False), "timestamp 1 shows 2 draws"),
    "two draws, both committed": (another_draw(True), "timestamp 1 shows 2 draws"),
    "a draw only in the ledger": (
        lambda sound: replace(sound, ledger=[*sound.ledger, replace(entry(1, b"x"), committed=False)]),
        "timestamp 1 shows 2 draws",
    ),
    "a record that was not charged": (
        another_draw(False),
        "timestamp 1 shows a record that was never charged",
    ),
    "a charge that was aborted": (
        lambda sound: replace(
            sound,
            ledger_changelog=[
                replace(sound.ledger_changelog[0], committed=False),
                *sound.ledger_changelog[1:],
            ],
        ),
        "timestamp 1 shows a record that was never charged",
    ),
    "charge and publication in one": (adjacent, "were charged as they were published"),
    "two decisions": (decided_again, "timestamp 1 was decided twice"),
    "a state that went back": (
        lambda sound: replace(sound, ledger_changelog=[*sound.ledger_changelog, sound.ledger_changelog[1]]),
        "the released timestamps went back from 4 to 2",
    ),
    "no ledger entry": (
        lambda sound: replace(sound, ledger=sound.ledger[1:]),
        "1 releases without their ledger entry",
    ),
    "a ledger entry too many": (
        lambda sound: replace(sound, ledger=[*sound.ledger, sound.ledger[0]]),
        "1 ledger entries without their release",
    ),
    "a window above epsilon": (
        lambda _: with_release(1, spent={"test": 1, "publish": UNITS // 2}, window_spent=UNITS + 1),
        f"the window that ends at 2 spent {UNITS + 1} of {UNITS}",
    ),
    "a window with a false sum": (lambda _: with_release(1, window_spent=5), "tells a window of 5"),
    "units of another window": (lambda _: with_release(1, units=2 * UNITS), "the window that ends at 2"),
    "a false count": (lambda _: with_release(2, counts={"north": 1, "south": 1}), "timestamp 3 counts"),
    "a column too few": (lambda _: with_release(1, counts={"north": 0}), "timestamp 2 counts"),
    "a repetition that differs": (
        lambda _: with_release(1, fresh=False, spent={"test": 0, "publish": UNITS // 2}),
        "timestamp 2 is not fresh, yet differs",
    ),
    "fresh for nothing": (
        lambda _: with_release(1, spent={"test": UNITS // 2, "publish": 0}),
        "timestamp 2 is fresh, yet not paid for",
    ),
    "a lost dead letter": (
        lambda sound: replace(sound, dead=sound.dead[1:]),
        "record (0, 3) should be a dead letter, not-json",
    ),
    "a dead letter twice": (
        lambda sound: replace(sound, dead=[*sound.dead, sound.dead[0]]),
        "record (0, 3) is a dead letter twice",
    ),
    "a dead letter that counts": (
        lambda sound: replace(sound, dead=[*sound.dead, letter(5, "late")]),
        "record (0, 5) is a dead letter, late, but should be counted in timestamp 3",
    ),
    "a dead letter with another reason": (
        lambda sound: replace(sound, dead=[letter(3, "late"), sound.dead[1]]),
        "record (0, 3) is a dead letter, late, but should be not-json",
    ),
    "a dead letter with other bytes": (
        lambda sound: replace(sound, dead=[replace(sound.dead[0], value=b"["), sound.dead[1]]),
        "the dead letter of record (0, 3) is not that record",
    ),
    "an event closed out too early": (
        lambda sound: replace(sound, dead=[*sound.dead, letter(5, "after-close")]),
        "record (0, 5) is a dead letter, after-close",
    ),
    "a timestamp that was opened again": (
        lambda sound: replace(sound, counting_changelog=[progress(4, 6), progress(3, 6)]),
        "counting in partition 0 went from (4, 6) to (3, 6)",
    ),
}


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_what_is_made_wrong_is_named(name: str) -> None:
    corrupt, accusation = CORRUPTIONS[name]
    assert accusation in "\n".join(verify(RULES, corrupt(logs())).violations)


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (None, "tombstone"),
        (b"x" * 101, "too-large"),
        (b"{", "not-json"),
        (b"[1]", "missing-field"),
        (b'{"place": "north", "time": 1}', "missing-field"),
        (b'{"user": 1, "place": "north", "time": 1}', "wrong-type"),
        (b'{"user": "", "place": "north", "time": 1}', "empty-user"),
        (b'{"user": "a", "place": "west", "time": 1}', "unknown-column"),
        (b'{"user": "a", "place": "north", "time": "soon"}', "time-unreadable"),
        (b'{"user": "a", "place": "north", "time": true}', "wrong-type"),
        (event("a", "north", 999), "before-origin"),
        (event("a", "north", 1_021), "too-far-ahead"),
        (event("a", "north", 995), "before-origin"),
    ],
)
def test_the_rules_give_each_unfit_record_one_reason(value: bytes | None, verdict: str) -> None:
    assert judge(Record(0, 0, 1_010, b"k", value), RULES) == verdict

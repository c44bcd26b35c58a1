"""Dead letters by reason and remedy, as ``eventveil dead`` shows them."""

from __future__ import annotations

import json
from typing import Literal

import pytest

from eventveil.cli.dead import lines
from eventveil.decoding.details import long_duration
from eventveil.doctor.diagnosis import remedy_of, setting_of
from eventveil.doctor.letters import Letter, groups
from eventveil.doctor.sample import SampledRecord
from eventveil.model.partitioners import RECOGNIZED
from eventveil.model.timeline import parse_rfc3339
from tests.unit.doctor.making import FILE, event, topology
from tests.unit.doctor.test_framing import BEHIND
from tests.unit.support import stream


def test_dead_letters_have_the_same_remedy() -> None:
    value = b"\0\0\0\0\7" + json.dumps(event(1)).encode()
    letter = Letter("views", "not-json", "unexpected character", "shop.views", 0, 1, -1, b"c-1", value)
    (group,) = groups(topology(), FILE, [letter] * 3, {"shop.views": 20}, 1)
    assert group.remedy == f"{BEHIND} and JSON follows: format: json-schema, not json"


@pytest.mark.parametrize(
    ("reason", "detail", "shown"),
    [
        ("before-origin", "116416658 ms before the origin", "1d 8h 20m 17s before the origin"),
        ("late", "appended 1500000 ms after the deadline of 1", "appended 25m after the deadline of 1"),
        (
            "late",
            "appended behind the boundary of 7",
            "appended after the boundary that ended timestamp 7 in its partition",
        ),
        ("too-far-ahead", "60500 ms ahead of the append time", "1m ahead of the append time"),
        ("misaligned", "7 ms after the start of timestamp 3", "7ms after the start of timestamp 3"),
        ("unknown-column", "'5000 ms' at /page", "'5000 ms' at /page"),
        ("wrong-type", "the user at /user: text, not NoneType", "the user at /user: text, not null"),
        ("wrong-type", "the user at /user: text, not int", "the user at /user: text, not an integer"),
    ],
)
def test_details_of_dead_letters_are_shown_in_units_and_words_that_one_can_read(
    reason: str, detail: str, shown: str
) -> None:
    letter = Letter("views", reason, detail, "shop.views", 0, 1, -1, b"c-1", b"{}")
    (group,) = groups(topology(), FILE, [letter], {"shop.views": 20}, 1)
    assert f"  shop.views, partition 0, offset 1: {shown}" in [*lines(group)]
    assert group.fields()["samples"][0]["detail"] == detail


def test_long_durations_have_all_their_units() -> None:
    assert [*map(long_duration, (0, 1500, 60_400, 90_061_000))] == ["0ms", "1.500s", "1m", "1d 1h 1m 1s"]


def test_dead_letters_are_judged_by_their_users_and_not_by_their_keys() -> None:
    letters = []
    for number in range(200):
        key = f"s-{number}".encode()
        value, partition = json.dumps(event(number % 50)).encode(), RECOGNIZED["murmur2"](key, 20)
        letters.append(
            Letter("views", "wrong-partition", "", "shop.views", partition, number, -1, key, value)
        )
    (group,) = groups(topology(), FILE, letters, {"shop.views": 20}, 1)
    assert group.remedy.startswith(
        "users are in partitions that no partitioner of a topology explains (random: many values"
    )
    assert "Set repartition: true" in group.remedy


def test_dead_letters_of_one_reason_with_other_remedies_are_told_apart() -> None:
    details = ["the user at /user: text, not NoneType"] * 2 + ["the column at /page: text, not int"]
    letters = [
        Letter("views", "wrong-type", detail, "shop.views", 0, number, -1, b"c-1", b"{}")
        for number, detail in enumerate(details)
    ]
    found = groups(topology(), FILE, letters, {"shop.views": 20}, 1)
    assert [(one.number, one.setting) for one in found] == [(2, "source.user"), (1, "counts.columns")]


def test_dead_letters_without_a_field_name_the_fields_that_may_be_meant() -> None:
    typed = [json.dumps({"custmer": f"c-{number}", "page": "a"}).encode() for number in range(3)]
    detail = "no user at /customer"
    letters = [
        Letter("views", "missing-field", detail, "shop.views", 0, number, -1, b"c-1", value)
        for number, value in enumerate([*typed, b"{}"])
    ]
    (group,) = groups(topology(), FILE, letters, {"shop.views": 20}, 1)
    assert "  Did you mean /custmer? It is in 3 of these" in [*lines(group)]
    assert group.fields()["similar"] == [["/custmer", 3]]


def test_dead_letters_without_a_header_name_the_headers_that_may_be_meant() -> None:
    kept = (("X-User", b"c-1"), ("eventveil.reason", b"missing-field"))
    told = {
        "stream": b"views", "reason": b"missing-field", "detail": b"no user at $headers/x_user",
        "topic": b"shop.views", "partition": b"0", "offset": b"1", "timestamp": b"-1",
    }  # fmt: skip
    record = SampledRecord(
        0, 1, b"{}", None, (*kept[:1], *((f"eventveil.{name}", value) for name, value in told.items()))
    )
    letter = Letter.read(record)
    assert letter is not None
    assert letter.record.headers == kept[:1]
    by_header = FILE.replace("user: /customer", "user: $headers/x_user")
    (group,) = groups(topology(by_header), by_header, [letter], {"shop.views": 20}, 1)
    assert group.similar == [("$headers/X-User", 1)]


@pytest.mark.parametrize(
    ("time", "unit", "setting", "told"),
    [
        (0, "ms", "source.time", "1970-01-01T00:00:00Z, which stands for a time that was never set"),
        (parse_rfc3339("0001-01-01T00:00:00Z"), "ms", "source.time", "0001-01-01T00:00:00Z, which stands"),
        (1_767_225_600, "ms", "source.time_unit", "give time_unit: s if these are epoch seconds"),
        (1_767_225_600, "us", "source.time_unit", "close to 1970"),
        (parse_rfc3339("2019-01-01T00:00:00Z"), "ms", "timeline.origin", "do nothing if these are older"),
        (parse_rfc3339("2106-02-07T06:28:15Z"), "ms", "source.time", "over 10 years ahead"),
        (parse_rfc3339("2026-01-09T00:00:00Z"), "ms", "timeline.max_ahead", "correct the producer's clock"),
        (1_767_225_600_000_000, "ms", "source.time_unit", "over 100 years ahead"),
    ],
)
def test_a_time_that_nobody_meant_has_its_own_remedy(
    time: int, unit: Literal["ms", "us"], setting: str, told: str
) -> None:
    origin, now = parse_rfc3339("2020-01-01T00:00:00Z"), parse_rfc3339("2026-01-02T00:00:00Z")
    found = stream(origin=origin, time_unit=unit)
    reason, detail = "before-origin", f"{origin - time} ms before the origin"
    if time > now:
        reason, detail = "too-far-ahead", f"{time - now} ms ahead of the append time"
    assert setting_of(reason, detail, found) == setting
    assert told in remedy_of(reason, detail, found)


def test_dead_letters_of_a_stream_that_the_file_does_not_have_are_said_to_be() -> None:
    letter = Letter("former", "late", "", "shop.views", 0, 1, -1, b"c-1", b"{}")
    (group,) = groups(topology(), FILE, [letter], {"shop.views": 20}, 1)
    assert group.remedy == "the file has no stream of this name: it is from before a change"
    assert ":" not in group.place

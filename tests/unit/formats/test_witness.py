"""The witness: a ledger that lacks what was seen in it is refused, whatever it has instead."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from fractions import Fraction
from typing import Any

import orjson
import pytest

from eventveil.formats.change import Change, Difference, Terms
from eventveil.formats.witness import Line, Sighting, Sightings, Witness, refusal
from eventveil.model.errors import StateRefused

PLACE = "/var/lib/shop.witness"
TERMS = Terms("uniform", Fraction(1), 4, 8)


def entry(timestamp: int, draw: int = 0, instance: str = "i-0", stream: str = "visits") -> bytes:
    """A ledger entry; ``draw`` stands for its digest."""
    return orjson.dumps({"stream": stream, "timestamp": timestamp, "digest": draw, "instance": instance})


def change(start: int) -> bytes:
    fields = {"mechanism.epsilon": Difference("1", "2")}
    return Change("visits", "migration", start, fields, TERMS, TERMS, "i-1", "i-0").encode()


def span(start: int, stop: int, source: int) -> bytes:
    fields: dict[str, Any] = {"stream": "minutes", "partition": source, "purpose": "tree", "start": start}
    return orjson.dumps({**fields, "stop": stop, "spent": 1, "units": 2, "instance": "v-0"})


def reading(position: int, source: int, value: int | None = 3) -> bytes:
    fields = {"stream": "minutes", "partition": source, "position": position, "reading": value}
    return orjson.dumps({**fields, "mechanism": "tops"})


def look(records: list[bytes], before: Witness | None = None) -> Sightings:
    """Look through a ledger of one partition, number 3."""
    sightings = Sightings(before)
    for offset, value in enumerate(records):
        sightings.see(Sighting.read(LOG, offset, value))
    return sightings


def witness(records: list[bytes], before: Witness | None = None) -> Witness:
    return Witness("shop", "cluster", 1_767_225_600_000, look(records, before).seen())


def lost(records: list[bytes], before: Witness) -> list[str]:
    """What the refusals say that the ledger has now."""
    found = look(records, before).lost(before.seen)
    return [str(refusal(PLACE, before, *one)) for one in found]


LEDGER = [entry(5), entry(6), entry(7)]
LOG = ("shop-ledger", 3)


def test_the_newest_record_of_every_stream_is_kept_with_its_place_and_digest() -> None:
    seen = witness([*LEDGER, entry(41, stream="orders"), span(0, 4096, 1)]).seen
    assert {line: (one.last, one.offset) for line, one in seen.items()} == {
        Line("visits"): (7, 2), Line("orders"): (41, 3),
    }  # fmt: skip
    assert seen[Line("visits")] == Sighting(
        "visits", None, "i-0", 7, hashlib.sha256(entry(7)).hexdigest(), "shop-ledger", 3, offset=2
    )


def test_of_values_the_newest_reading_of_every_source_partition_is_kept() -> None:
    # A span may be charged long before its last reading, so the ledger alone would tell too little.
    records = [reading(0, 1), reading(0, 2, None), span(0, 4096, 1), reading(1, 1)]
    seen = witness(records).seen
    assert {line: (one.last, one.offset) for line, one in seen.items()} == {
        Line("minutes", 1): (2, 3), Line("minutes", 2): (1, 1),
    }  # fmt: skip
    assert seen[Line("minutes", 1)].instance is None


def test_a_change_is_the_newest_record_until_something_is_released_after_it() -> None:
    seen = witness([*LEDGER, change(8)]).seen[Line("visits")]
    assert (seen.last, seen.instance, seen.what) == (7, "i-1", "timestamp 7")


def test_a_witness_survives_its_bytes_and_tells_people_when_it_was_written() -> None:
    one = witness([*LEDGER, reading(4, 1)])
    assert Witness.decode(one.encode(), PLACE) == one
    assert orjson.loads(one.encode())["written"] == one.when == "2026-01-01T00:00:00Z"


def test_a_ledger_that_only_grew_has_lost_nothing() -> None:
    before = witness(LEDGER)
    grown = [*LEDGER, change(8), entry(8, instance="i-1"), entry(5, draw=9, instance="i-2")]
    assert lost(LEDGER, before) == lost(grown, before) == []
    # Also where it was written anew from a backup, at other offsets.
    assert lost([entry(1, stream="x"), *LEDGER], before) == []
    assert witness(grown, before).seen[Line("visits")].instance == "i-2"


def test_a_ledger_that_ends_earlier_is_told_with_both_ends_and_the_remedy() -> None:
    (message,) = lost(LEDGER[:1], witness(LEDGER))
    assert message == (
        f"{PLACE}, stream visits: on 2026-01-01T00:00:00Z the ledger had timestamp 7 (of i-0), and now it "
        "ends with timestamp 5: the cluster, or its topics, were restored to an earlier point, and what was "
        "released after that would be drawn again. Restore a copy of the cluster that has what was released "
        "last: that costs nothing. If there is none, give the stream a new name and a new sink (whose "
        "epsilon adds up)"
    )


@pytest.mark.parametrize(
    "now", [[entry(7, draw=1)], [entry(7, draw=1), entry(8)], [entry(7, instance="i-9")]]
)
def test_another_release_of_the_same_timestamp_is_another_history(now: list[bytes]) -> None:
    (message,) = lost([*LEDGER[:2], *now], witness(LEDGER))
    last = orjson.loads(now[-1])["timestamp"]
    assert f"and now it has another history, up to timestamp {last}: " in message


def test_an_emptied_ledger_is_told() -> None:
    (message,) = lost([], witness(LEDGER))
    assert "and now it has nothing of this stream: " in message


def test_readings_are_missed_for_each_partition_of_their_source() -> None:
    records = [reading(0, 1), reading(0, 2), reading(1, 2)]
    (message,) = lost(records[:2], witness(records))
    assert message.startswith(
        f"{PLACE}, stream minutes, source partition 2: on 2026-01-01T00:00:00Z the sink "
    )
    assert " the sink had 2 values, and now it ends with 1 values: " in message
    (message,) = lost([*records[:2], reading(1, 2, 4)], witness(records))
    assert "and now it has another history, up to 2 values: " in message


def test_readings_that_retention_has_removed_are_not_missed() -> None:
    before = witness([reading(0, 1), reading(1, 1)])
    for begins, missed in ((0, 1), (1, 1), (2, 0)):
        sightings = Sightings(before)
        sightings.begins(LOG, begins)
        sightings.begins(("another", 3), 99)
        assert len(sightings.lost(before.seen)) == missed


def test_a_stream_that_is_in_no_file_any_more_is_kept_as_it_was_seen() -> None:
    before = witness([*LEDGER, entry(41, stream="gone")])
    sightings = look(LEDGER, before)
    assert sightings.lost([Line("visits"), Line("never seen")]) == []
    assert sightings.seen() == before.seen
    assert [one.last for one, _ in sightings.lost([Line("gone")])] == [41]


def test_what_is_no_ledger_entry_is_passed_over() -> None:
    others = [b"null", b"[]", b'{"stream": "x"}', b'{"stream": 1, "timestamp": 2}', b'{"reading": 1}']
    assert witness(others).seen == {}
    assert Sighting.read(LOG, 0, b"{") is None
    assert Sighting.read(LOG, 0, None) is None


def test_the_witness_of_another_topology_or_cluster_is_refused() -> None:
    one = witness(LEDGER)
    one.check("shop", "cluster", PLACE)
    with pytest.raises(StateRefused) as refused:
        one.check("bakery", "cluster", PLACE)
    assert str(refused.value) == (
        f"{PLACE}: it is the witness of the topology shop, not of bakery. Name the witness of this topology: "
        "each has a file of its own"
    )
    with pytest.raises(StateRefused) as refused:
        one.check("shop", "elsewhere", PLACE)
    assert str(refused.value) == (
        f"{PLACE}: it is the witness of the Kafka cluster cluster, and this is the cluster elsewhere. Point "
        "kafka.bootstrap to the cluster that it is of, or name the witness of this one"
    )


def broken() -> list[bytes]:
    whole: dict[str, Any] = orjson.loads(witness(LEDGER).encode())
    seen = whole["seen"]
    changes: list[dict[str, Any]] = [
        {"version": 2}, {"topology": 1}, {"cluster": None}, {"epoch_ms": "now"}, {"epoch_ms": True},
        {"seen": {}}, {"seen": [{}]}, {"seen": [*seen, *seen]}, {"seen": [{**seen[0], "last": "7"}]},
        {"seen": [{**seen[0], "offset": -1}]}, {"seen": [{**seen[0], "digest": 7}]},
        {"seen": [{**seen[0], "source": "1"}]}, {"seen": [{**seen[0], "topic": None}]},
    ]  # fmt: skip
    lacking = [{name: whole[name] for name in whole if name != one} for one in ("version", "seen", "cluster")]
    others = [b"", b"[]", b"{}", b"\xff", witness(LEDGER).encode()[:-3]]
    return [*others, *(orjson.dumps({**whole, **one}) for one in changes), *map(orjson.dumps, lacking)]


@pytest.mark.parametrize("value", broken())
def test_what_is_no_witness_is_refused_and_never_taken_for_an_empty_one(value: bytes) -> None:
    with pytest.raises(StateRefused, match="it cannot be read as a witness") as refused:
        Witness.decode(value, PLACE)
    assert refused.value.place == PLACE
    assert "Restore a copy of it" in refused.value.remedy


def test_every_field_of_a_sighting_is_needed() -> None:
    whole = orjson.loads(witness(LEDGER).encode())
    (seen,) = whole["seen"]
    assert set(seen) == {
        "stream", "source", "instance", "last", "digest", "topic", "partition", "offset",
    }  # fmt: skip
    for name in seen:
        less = {one: seen[one] for one in seen if one != name}
        with pytest.raises(StateRefused):
            Witness.decode(orjson.dumps({**whole, "seen": [less]}), PLACE)


def test_a_witness_of_nothing_refuses_nothing() -> None:
    empty = replace(witness([]), seen={})
    assert Witness.decode(empty.encode(), PLACE) == empty
    assert lost([], empty) == lost(LEDGER, empty) == []

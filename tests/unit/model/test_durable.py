"""Durable records: what is read back is what was written, or it is refused with the field that is wrong."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import orjson
import pytest

from eventveil.counting.boundaries import Boundary
from eventveil.counting.counter import CounterState
from eventveil.model.durable import Durable
from eventveil.model.errors import StateRefused
from eventveil.tasks.pan_private import Exposure
from eventveil.tasks.release import ReleaseState
from eventveil.tasks.repartition import Capture, RekeyerState
from eventveil.tasks.values import Pending, PerturberState
from eventveil.values.ledger import Charge

RECORDS = [
    CounterState("i", 1, 2, 3, 4, 5),
    CounterState("i", 1, 2, 3, 4, 5, (6, 7), (Boundary(1, 2), Boundary(3, 4))),
    ReleaseState("i", 1, 1, 0),
    ReleaseState("i", 1, 4, 0, "{}", ("{}",), ((0, 1, 2),), ((1, 3, 9),)),
    RekeyerState("i", 0, 3),
    RekeyerState("i", 0, 3, 8, (Capture(1, 2), Capture(1, 3))),
    ReleaseState("i", 1, 4, 0, "{}", ("{}",), eventveil="0.2.0"),
    PerturberState("i", 0, 3),
    PerturberState("i", 0, 9, 2, 2, "{}", Pending((7, 8), (None, 3), (Charge("tree", 0, 2, 4),))),
    PerturberState("i", 0, 9, 2, 2, "{}", Pending((7, 8), (None, 3), (Charge("tree", 0, 2, 4),)), "0.2.0"),
    Exposure("i"),
    Exposure("i", 3, 2, 1),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_what_was_written_is_read_back(record: Durable) -> None:
    assert type(record).decode(record.encode(), "here") == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
@pytest.mark.parametrize(
    "wrong", [None, -1, 1.0, True, 2**63, "1", [], {}, [[0]]], ids=lambda wrong: str(wrong)
)
def test_a_field_of_another_type_or_range_is_refused_or_read_back_as_it_is(
    record: Durable, wrong: Any
) -> None:
    """No value is taken for another one that is like it, such as 1.0 or true for 1."""
    written = orjson.loads(record.encode())
    for name in written:
        changed = orjson.dumps({**written, name: wrong})
        try:
            found = type(record).decode(changed, "here")
        except StateRefused:
            continue
        read = orjson.loads(found.encode()).get(name, wrong)
        assert (type(read), read) == (type(wrong), wrong)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_field_more_or_less_is_refused(record: Durable) -> None:
    written = orjson.loads(record.encode())
    with pytest.raises(StateRefused, match="unknown field `later`"):
        type(record).decode(orjson.dumps({**written, "later": 1}), "here")
    omitted = {"boundaries", "missing", "given_up", "captures"} | (
        {"passed"} if isinstance(record, CounterState) else set()
    )
    for name in {*written} - omitted:
        short = {key: value for key, value in written.items() if key != name}
        with pytest.raises(StateRefused, match=name):
            type(record).decode(orjson.dumps(short), "here")


@pytest.mark.parametrize("version", [0, 2, "1", 1.0, True, None, [1]], ids=str)
def test_another_version_is_refused(version: Any) -> None:
    changed = orjson.dumps({**orjson.loads(RECORDS[0].encode()), "version": version})
    with pytest.raises(StateRefused, match=r"the state has version .*, this program reads version 1"):
        CounterState.decode(changed, "here")


NAMED = [one for one in RECORDS if getattr(one, "eventveil", "")]


def test_what_an_earlier_program_can_read_is_written_for_it() -> None:
    """One that has more is of another version, for which an earlier program names the remedy."""
    assert [type(one) for one in NAMED] == [ReleaseState, PerturberState]
    for one in RECORDS:
        written = orjson.loads(one.encode())
        assert written["version"] == (2 if one in NAMED else 1)
        assert ("eventveil" in written) == (one in NAMED)
        assert one.encode().startswith(b'{"version":')


@pytest.mark.parametrize("record", NAMED, ids=lambda record: type(record).__name__)
@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"version": 1}, "version 2 goes with eventveil"),
        ({"version": 3}, "has version 3, this program reads version 1 and 2"),
        ({"eventveil": ""}, "cannot be read"),
        ({"eventveil": "0.1.0\n"}, "cannot be read"),
        ({"eventveil": "<b>"}, "cannot be read"),
        ({"eventveil": "1" * 41}, "cannot be read"),
        ({"pending": []}, "not there|cannot be read"),
        ({"pending": {"offsets": [7, 8], "readings": [3, 3], "charges": []}}, "not there|cannot be read"),
    ],
)
def test_a_version_that_does_not_fit_the_rest_is_refused(
    record: Durable, change: dict[str, Any], refusal: str
) -> None:
    changed = orjson.dumps({**orjson.loads(record.encode()), **change})
    with pytest.raises(StateRefused, match=refusal):
        type(record).decode(changed, "here")


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"null", b"\xff", b'{"version":1,"\xff":1}', b"[" * 99999], ids=repr
)
def test_what_is_no_record_is_refused(value: bytes) -> None:
    with pytest.raises(StateRefused, match="cannot be read"):
        CounterState.decode(value, "here")


def test_nothing_of_a_pending_reading_is_in_the_refusal() -> None:
    """The text goes to the log, and a pending reading is not public yet."""
    written = orjson.loads(RECORDS[8].encode())
    written["pending"]["readings"] = [4711.5, 3]
    with pytest.raises(StateRefused) as refusal:
        PerturberState.decode(orjson.dumps(written), "here")
    assert "4711" not in str(refusal.value)


SIDE_BY_SIDE = """
import sys, threading
from msgspec import defstruct
from eventveil.model.durable import Durable, Natural

# Threads take turns after each step, as they may on a busy machine.
sys.setswitchinterval(1e-6)
for _ in range(300):
    fields = [(f"f{at}", tuple[tuple[Natural, str], ...], ()) for at in range(40)]
    cls = defstruct("State", fields, bases=(Durable,))
    value = cls(**{f"f{at}": ((at, "a"),) for at in range(40)}).encode()
    start, found = threading.Barrier(8), []

    def read():
        start.wait()
        found.append(cls.decode(value, "here").encode())

    threads = [threading.Thread(target=read) for _ in range(8)]
    for one in threads: one.start()
    for one in threads: one.join()
    assert found == [value] * 8
"""


def test_partitions_may_read_the_first_state_of_a_kind_at_the_same_moment() -> None:
    run = subprocess.run([sys.executable, "-c", SIDE_BY_SIDE], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")

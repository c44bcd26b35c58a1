from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eventveil.counting.counter import Partial
from eventveil.model.errors import EventveilError
from eventveil.model.records import NO_APPEND_TIME, TopicPartition
from eventveil.model.timeline import latest_times, start_of
from eventveil.model.topology import Condition, Kafka
from eventveil.replay import inputs
from eventveil.replay.inputs import FileInput, TopicInput
from eventveil.replay.rekeying import RekeyingInput
from eventveil.topology.scalars import END_OF_TIME
from tests.unit.replay.history import HOUR, ORIGIN, stream

LONGEST = 1000


def values_of(path: Path, content: bytes) -> list[bytes | None]:
    path = path / "events.jsonl"
    path.write_bytes(content)
    source = FileInput(str(path))
    assert source.begin(0, LONGEST) == {0: 0}
    assert not source.ended(0)
    found: list[bytes | None] = []
    for chunk in source.chunks():
        assert chunk.start == len(found)
        assert list(chunk.offsets) == list(range(len(found), chunk.next_offset))
        assert len(chunk.values) == len(chunk.offsets) == len(chunk.append_times) == len(chunk.keys)
        found += chunk.values
    assert source.ended(0)
    return found


def test_every_line_is_a_value_the_last_one_also_without_line_feed(tmp_path: Path) -> None:
    assert values_of(tmp_path, b"one\ntwo\nthree") == [b"one", b"two", b"three"]


def test_blank_lines_are_no_events(tmp_path: Path) -> None:
    assert values_of(tmp_path, b"\none\n\n  \t\r\ntwo\n\n") == [b"one", b"two"]


def test_an_empty_file_has_no_values(tmp_path: Path) -> None:
    assert values_of(tmp_path, b"") == []


@pytest.mark.parametrize("content", [b"a", b"a\n", b"ab", b"\n", b"\n\n\n\nx"])
def test_files_shorter_than_a_byte_order_mark_are_read(tmp_path: Path, content: bytes) -> None:
    assert values_of(tmp_path, content) == [line for line in content.split(b"\n") if line]


def test_a_byte_order_mark_does_not_spoil_the_first_event(tmp_path: Path) -> None:
    assert values_of(tmp_path, b"\xef\xbb\xbf{}\n{}") == [b"{}", b"{}"]


def test_lines_that_cross_blocks_stay_whole(tmp_path: Path) -> None:
    lines = [b"%07d" % number + b"x" * (number % 90) for number in range(50_000)]
    assert values_of(tmp_path, b"\n".join(lines)) == lines


def test_of_a_line_that_never_ends_just_enough_is_kept_to_be_too_large(tmp_path: Path) -> None:
    before, _, after = values_of(tmp_path, b"first\n" + b"x" * 5_000_000 + b"\nlast\n")
    assert (before, after) == (b"first", b"last")
    kept = values_of(tmp_path, b"x" * 3_000_000)[0]
    assert kept is not None
    assert LONGEST < len(kept) < 3_000_000


def test_progress_is_told_in_bytes(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"line\n" * 600_000)
    source = FileInput(str(path))
    source.begin(0, LONGEST)
    told = [source.done for _ in source.chunks()]
    assert told == sorted(told)
    assert (told[-1], source.total) == (3_000_000, 3_000_000)


def test_a_pipe_is_read_like_a_file_of_unknown_length(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"one\ntwo\n",))
    writer.start()
    source = FileInput(str(path))
    source.begin(0, LONGEST)
    assert [value for chunk in source.chunks() for value in chunk.values] == [b"one", b"two"]
    assert source.total is None
    writer.join()


def test_a_file_that_is_not_there_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileInput(str(tmp_path / "none"))


def test_a_stream_that_looks_around_the_value_is_not_replayed_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    filters = (Condition("$headers/env", "present"),)
    one = stream(topic="raw")
    ruled = replace(one, source=replace(one.source, user="$key", filter=filters))
    with pytest.raises(
        EventveilError, match=r"looks at \$headers/env, \$key, which a file does not have.* topic:raw"
    ):
        FileInput(str(tmp_path / "f")).rules(ruled, None)


def test_the_lines_of_a_file_are_json_however_the_topic_is_written(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    one = stream(topic="raw")
    framed = replace(one, source=replace(one.source, format="json-schema"))
    assert FileInput(str(tmp_path / "f")).rules(framed, None).source.format == "json"


def test_the_rules_of_a_file_leave_out_what_ends_after_the_range_only(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    source = FileInput(str(tmp_path / "f"))
    judged = source.rules(stream(lateness=5, max_ahead=7), 4)
    assert judged.timeline.max_ahead == ORIGIN + 4 * HOUR - 1
    assert judged.timeline.lateness > END_OF_TIME
    assert END_OF_TIME - HOUR <= source.rules(stream(), None).timeline.max_ahead < END_OF_TIME


class With:
    """A cluster that has these topics."""

    def __init__(self, existing: set[str]) -> None:
        self._existing = existing

    def topics(self, names: set[str]) -> set[str]:
        return self._existing & names


class Message:
    """A record of the partial counts, as the client gives it."""

    def __init__(self, timestamp: int) -> None:
        counts = np.array([1])
        self._value = Partial("destinations", timestamp, 0, "i", counts, counts, boundary=7).encode()

    def key(self) -> bytes:
        return b"destinations"

    def value(self) -> bytes:
        return self._value

    def offset(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("timestamps", "first", "warnings"),
    [
        ([3, 4], 3, []),
        (
            [3, 4], 1,
            ["have no boundary for timestamps before 3, so no event that was appended before the boundary of "
             "3 is late here. Counts of earlier timestamps may include events that a worker would have left "
             "out; --from 2013-01-01T02:00:00Z skips these timestamps"],
        ),
        ([], 1, ["have no boundary: no event is late or too far ahead here"]),
    ],
)  # fmt: skip
def test_missing_boundaries_are_told_with_what_follows(
    monkeypatch: pytest.MonkeyPatch, timestamps: list[int], first: int, warnings: list[str]
) -> None:
    monkeypatch.setattr(inputs, "read_partition", lambda *_: map(Message, timestamps))
    monkeypatch.setattr(inputs, "Cluster", lambda _: With({"partials"}))
    source = TopicInput(Kafka("localhost:9092"), "events")
    found = source.boundaries(stream(), first, TopicPartition("partials", 0))
    assert [one.last for one in found.get(0, ())] == timestamps
    assert source.warnings == [f"destinations: the worker's partial counts {one}" for one in warnings]
    one = stream()
    judged = source.rules(replace(one, source=replace(one.source, append_time="boundary")), None)
    within = start_of(judged.timeline, 10**6)
    ahead = latest_times(judged, first, NO_APPEND_TIME)
    assert (ahead >= within) is not bool(timestamps)


def test_without_a_topic_of_partial_counts_no_boundary_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "read_partition", lambda *_: pytest.fail("read what does not exist"))
    monkeypatch.setattr(inputs, "Cluster", lambda _: With(set()))
    source = TopicInput(Kafka("localhost:9092"), "events")
    assert source.boundaries(stream(), 1, TopicPartition("app-partials", 0)) == {}
    assert source.is_limited_by_range(stream())
    assert source.warnings[0].endswith("have no boundary: no event is late or too far ahead here")


def test_only_where_no_append_times_are_known_what_is_too_far_ahead_is_after_the_range() -> None:
    timed = stream()
    untimed = replace(timed, name="untimed", source=replace(timed.source, append_time="boundary"))
    from_topic = RekeyingInput(Kafka("127.0.0.1:1"), "raw", "app-repartition-raw")
    assert from_topic.rules(timed, 9) == timed
    assert from_topic.rules(untimed, 9).timeline.lateness > 9 * HOUR
    assert [from_topic.is_limited_by_range(one) for one in (timed, untimed)] == [False, True]

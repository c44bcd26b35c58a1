"""Behaviours of a log that the worker's protocol rests on; each test holds in memory and on a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from confluent_kafka import KafkaException

from eventveil.kafka.writer import Appended
from eventveil.model.partitioners import murmur2_partition
from eventveil.model.records import Outgoing, TopicPartition
from eventveil.replay.log import TransactionalWriter
from tests.conformance.logs import BOTH, SECONDS, Log
from tests.kafka.topics import unique

#: As long as no test takes; the broker ends a transaction that lasts longer.
LONG = 60.0
#: The broker looks once a second for transactions that have lasted too long.
SHORT = 5.0
FENCED = "INVALID_PRODUCER_EPOCH"


def refused(call: Callable[[], object]) -> str:
    """The name of the error that a call must end in."""
    with pytest.raises(KafkaException) as caught:
        call()
    return str(caught.value.args[0].name())


def begun(log: Log, identity: str | None = None, lasts: float = LONG) -> TransactionalWriter:
    writer = log.writer(identity or unique("owner"), lasts)
    writer.initialise(SECONDS)
    writer.begin(SECONDS)
    return writer


def records(place: TopicPartition, *values: str) -> list[Outgoing]:
    return [Outgoing(place[0], value.encode(), None, place[1]) for value in values]


def committed(log: Log, place: TopicPartition, *values: str) -> None:
    writer = begun(log)
    writer.write(records(place, *values))
    writer.commit(SECONDS)


def seen(log: Log, place: TopicPartition, start: int | None = None) -> list[list[tuple[int, bytes | None]]]:
    """Offsets and values, read committed and read uncommitted."""
    return [[(one.offset, one.value) for one in log.records(place, start, isolation)] for isolation in BOTH]


def ends(log: Log, place: TopicPartition) -> list[int]:
    """The same of the ends."""
    return [log.end(place, isolation) for isolation in BOTH]


def spots(appended: Iterable[Appended]) -> set[tuple[int, int, int]]:
    return {(one.partition, one.offset, one.count) for one in appended}


class LogBehaviours:
    """Tests of the fixture ``log``."""

    # Offsets, isolation and ends

    def test_a_commit_takes_an_offset_in_every_partition_of_the_transaction(self, log: Log) -> None:
        topic = log.topic(3)
        writer = begun(log)
        told = writer.write(records((topic, 0), "a", "b") + records((topic, 1), "c"))
        assert spots(told) == {(0, 0, 2), (1, 0, 1)}
        writer.commit(SECONDS)
        assert [ends(log, (topic, one)) for one in range(3)] == [[3, 3], [2, 2], [0, 0]]
        assert seen(log, (topic, 0)) == [[(0, b"a"), (1, b"b")]] * 2

    def test_an_abort_takes_an_offset_and_hides_its_records_from_committed_readers(self, log: Log) -> None:
        place = log.topic(), 0
        committed(log, place, "before")
        writer = begun(log)
        writer.write(records(place, "aborted"))
        writer.abort(SECONDS)
        committed(log, place, "after")
        assert seen(log, place) == [
            [(0, b"before"), (4, b"after")],
            [(0, b"before"), (2, b"aborted"), (4, b"after")],
        ]
        assert ends(log, place) == [6, 6]

    def test_an_open_transaction_hides_what_lies_behind_it_from_committed_readers(self, log: Log) -> None:
        place = log.topic(), 0
        log.append(records(place, "first"))
        open_ = begun(log)
        open_.write(records(place, "open"))
        log.append(records(place, "plain"))
        committed(log, place, "committed")
        assert ends(log, place) == [1, 5]
        assert seen(log, place) == [
            [(0, b"first")],
            [(0, b"first"), (1, b"open"), (2, b"plain"), (3, b"committed")],
        ]
        open_.commit(SECONDS)
        assert ends(log, place) == [6, 6]
        assert seen(log, place)[0] == seen(log, place)[1]

    def test_the_oldest_of_several_open_transactions_hides_the_end(self, log: Log) -> None:
        place = log.topic(), 0
        one, other = begun(log), begun(log)
        one.write(records(place, "one"))
        other.write(records(place, "other"))
        other.commit(SECONDS)
        assert ends(log, place) == [0, 3]
        one.write(records(place, "one more"))
        one.abort(SECONDS)
        assert seen(log, place)[0] == [(1, b"other")]
        assert ends(log, place) == [5, 5]

    def test_a_partition_that_was_added_and_not_written_to_gets_a_marker(self, log: Log) -> None:
        place = log.topic(), 0
        writer = begun(log)
        writer.add([place])
        assert ends(log, place) == [0, 0]
        writer.commit(SECONDS)
        assert (ends(log, place), seen(log, place)) == ([1, 1], [[], []])

    def test_a_transaction_without_records_leaves_nothing(self, log: Log) -> None:
        place = log.topic(), 0
        writer = begun(log)
        writer.commit(SECONDS)
        writer.begin(SECONDS)
        writer.abort(SECONDS)
        assert ends(log, place) == [0, 0]

    def test_one_producer_writes_transaction_after_transaction(self, log: Log) -> None:
        topic = log.topic(2)
        writer = begun(log)
        for attempt in range(3):
            writer.begin(SECONDS)
            told = writer.write(records((topic, attempt % 2), f"{attempt}"))
            told += writer.write(records((topic, 0), "more"))
            assert all(one.topic == topic for one in told)
            (writer.abort if attempt == 1 else writer.commit)(SECONDS)
        assert [one[0] for one in seen(log, (topic, 0))[0]] == [0, 1, 5, 6]
        assert seen(log, (topic, 1)) == [[], [(0, b"1")]]

    # Fencing

    def test_a_newer_producer_aborts_the_open_transaction_of_the_older_and_fences_it(self, log: Log) -> None:
        topic, identity = log.topic(2), unique("owner")
        older = begun(log, identity)
        older.write(records((topic, 0), "frozen"))
        newer = begun(log, identity)
        assert ends(log, (topic, 0)) == [2, 2]
        for step in (
            lambda: older.write(records((topic, 0), "of a zombie")),
            lambda: older.write(records((topic, 1), "of a zombie")),
            lambda: older.commit(SECONDS),
            lambda: older.abort(SECONDS),
        ):
            assert refused(step) == FENCED
        newer.write(records((topic, 0), "next"))
        newer.commit(SECONDS)
        assert seen(log, (topic, 0)) == [[(2, b"next")], [(0, b"frozen"), (2, b"next")]]
        assert ends(log, (topic, 1)) == [0, 0]

    def test_a_fenced_producer_that_had_nothing_open_cannot_begin(self, log: Log) -> None:
        place, identity = (log.topic(), 0), unique("owner")
        older = begun(log, identity)
        older.write(records(place, "committed"))
        older.commit(SECONDS)
        begun(log, identity)
        older.begin(SECONDS)
        assert refused(lambda: older.write(records(place, "of a zombie"))) == FENCED
        assert seen(log, place) == [[(0, b"committed")]] * 2

    def test_a_fenced_producer_is_not_told_so_when_it_commits_nothing(self, log: Log) -> None:
        identity = unique("owner")
        older = begun(log, identity)
        begun(log, identity)
        older.commit(SECONDS)

    def test_a_producer_that_only_added_a_partition_is_fenced_before_it_writes(self, log: Log) -> None:
        place, identity = (log.topic(), 0), unique("owner")
        older = begun(log, identity)
        older.add([place])
        begun(log, identity)
        assert refused(lambda: older.write(records(place, "of a zombie"))) == FENCED
        assert (ends(log, place), seen(log, place)) == ([1, 1], [[], []])

    def test_other_identities_go_on_when_one_is_fenced(self, log: Log) -> None:
        place, identity = (log.topic(), 0), unique("owner")
        neighbour = begun(log)
        neighbour.write(records(place, "neighbour"))
        begun(log, identity).write(records(place, "fenced"))
        begun(log, identity)
        neighbour.commit(SECONDS)
        assert seen(log, place) == [[(0, b"neighbour")], [(0, b"neighbour"), (1, b"fenced")]]

    def test_a_transaction_that_lasts_too_long_is_aborted_and_its_producer_fenced(self, log: Log) -> None:
        topic, identity = log.topic(2), unique("owner")
        slow, at_rest = begun(log, identity, SHORT), begun(log, lasts=SHORT)
        slow.write(records((topic, 0), "slow"))
        log.wait_for_timeout(SHORT, [(topic, 0)])
        assert seen(log, (topic, 0)) == [[], [(0, b"slow")]]
        assert ends(log, (topic, 0)) == [2, 2]
        for step in (
            lambda: slow.write(records((topic, 0), "too late")),
            lambda: slow.write(records((topic, 1), "too late")),
            lambda: slow.commit(SECONDS),
        ):
            assert refused(step) == FENCED
        # A producer without a transaction may rest for as long as it likes.
        assert spots(at_rest.write(records((topic, 1), "at rest"))) == {(1, 0, 1)}
        newer = begun(log, identity)
        newer.write(records((topic, 0), "newer"))
        newer.commit(SECONDS)
        assert seen(log, (topic, 0))[0] == [(2, b"newer")]

    # Records

    def test_a_record_keeps_its_key_value_and_headers(self, log: Log) -> None:
        place = log.topic(), 0
        headers = [("one", b"1"), ("one", b"2"), ("empty", b"")]
        kept = [
            Outgoing(*place[:1], b"value", b"key", 0, headers),
            Outgoing(place[0], None, b"", 0),
            Outgoing(place[0], b"", None, 0),
        ]
        log.append(kept)
        writer = begun(log)
        writer.write(kept)
        writer.commit(SECONDS)
        found = [(one.value, one.key, [*one.headers]) for one in log.records(place)]
        assert found == [(b"value", b"key", headers), (None, b"", []), (b"", None, [])] * 2

    def test_a_key_chooses_the_partition_that_the_java_client_would_take(self, log: Log) -> None:
        topic, keys = log.topic(3), [b"foobar", b"a-little-bit-longer-string", b"", b"x"]
        writer = begun(log)
        writer.write([Outgoing(topic, key, key) for key in keys])
        writer.commit(SECONDS)
        for one in range(3):
            expected = [key for key in keys if murmur2_partition(key, 3) == one]
            assert [record.value for record in log.records((topic, one))] == expected

    def test_a_table_has_the_last_committed_value_of_every_key(self, log: Log) -> None:
        place = log.topic(), 0

        def state(**values: str | None) -> list[Outgoing]:
            return [
                Outgoing(place[0], None if value is None else value.encode(), key.encode(), 0)
                for key, value in values.items()
            ]

        log.append([*state(a="1", b="1", c="1"), Outgoing(place[0], b"without a key", None, 0)])
        aborted = begun(log)
        aborted.write(state(a="aborted", d="aborted"))
        aborted.abort(SECONDS)
        decided = begun(log)
        decided.write(state(b="2", c=None))
        decided.commit(SECONDS)
        begun(log).write(state(a="open"))
        assert log.table(place) == {b"a": b"1", b"b": b"2"}

    # Times

    def test_append_times_are_the_logs_one_for_a_batch_and_in_order(self, log: Log) -> None:
        place = log.topic(), 0
        log.append(records(place, "claimed"), time=1_000)
        log.pass_time()
        writer = begun(log)
        (told,) = writer.write(records(place, "a", "b"))
        writer.commit(SECONDS)
        first, second, third = log.records(place)
        assert all(one.stamped for one in (first, second, third))
        assert 1_000_000_000_000 < first.time < second.time == third.time == told.time

    def test_create_times_are_the_producers_and_the_answer_has_no_append_time(self, log: Log) -> None:
        place = log.topic(stamped=False), 0
        for time in (2_000, 1_000, 3_000):
            log.append(records(place, "claimed"), time=time)
        writer = begun(log)
        (told,) = writer.write(records(place, "a"))
        writer.commit(SECONDS)
        assert told.time is None
        found = [*log.records(place)]
        assert not any(one.stamped for one in found)
        assert [one.time for one in found][:3] == [2_000, 1_000, 3_000]
        assert found[3].time > 1_000_000_000_000

    def test_an_offset_is_found_by_time(self, log: Log) -> None:
        place = log.topic(stamped=False), 0
        for time in (2_000, 1_000, 3_000):
            log.append(records(place, "claimed"), time=time)
        writer = begun(log)
        writer.add([place])
        writer.commit(SECONDS)
        # The marker at 3 has the time at which it was written.
        found = {time: log.offset_at(place, time) for time in (0, 1_000, 2_000, 2_001, 3_000, 3_001, 2**42)}
        assert found == {0: 0, 1_000: 0, 2_000: 0, 2_001: 2, 3_000: 2, 3_001: 3, 2**42: 4}

    # Beginnings and ends

    def test_deleting_records_moves_the_first_offset_and_nothing_else(self, log: Log) -> None:
        place = log.topic(), 0
        writer = begun(log)
        writer.write(records(place, "a", "b", "c"))
        writer.abort(SECONDS)
        committed(log, place, "d")
        log.delete_before(place, 1)
        assert (log.start(place), ends(log, place)) == (1, [6, 6])
        assert seen(log, place) == [[(4, b"d")], [(1, b"b"), (2, b"c"), (4, b"d")]]
        log.delete_before(place, 0)
        assert log.start(place) == 1
        log.delete_before(place, 6)
        assert (log.start(place), ends(log, place), seen(log, place)) == (6, [6, 6], [[], []])

    def test_deleting_what_an_open_transaction_wrote_moves_the_committed_end_to_the_first_offset(
        self, log: Log
    ) -> None:
        place = log.topic(), 0
        writer = begun(log)
        writer.write(records(place, "a", "b", "c"))
        log.delete_before(place, 2)
        assert (log.start(place), ends(log, place)) == (2, [2, 3])
        writer.commit(SECONDS)
        assert (ends(log, place), seen(log, place)) == ([4, 4], [[(2, b"c")]] * 2)

    def test_offsets_that_the_log_does_not_have_are_refused(self, log: Log) -> None:
        place = log.topic(), 0
        log.append(records(place, "a", "b", "c"))
        log.delete_before(place, 2)
        out_of_range = "OFFSET_OUT_OF_RANGE"
        assert refused(lambda: log.records(place, 1)) == out_of_range
        assert refused(lambda: log.records(place, 4)) == out_of_range
        assert refused(lambda: log.delete_before(place, 4)) == out_of_range
        assert (seen(log, place, 3), seen(log, place, 2)) == ([[], []], [[(2, b"c")]] * 2)

    def test_a_writer_gives_up_on_a_topic_or_partition_that_does_not_exist_and_writes_nothing(
        self, log: Log
    ) -> None:
        place = log.topic(), 0
        for missing in ((unique("missing"), 0), (place[0], 1)):
            writer = begun(log)
            writer.begin(0.1)
            assert refused(lambda: writer.write(records(place, "a") + records(missing, "b"))) == "_TIMED_OUT"  # noqa: B023
        assert ends(log, place) == [0, 0]

    def test_a_record_that_is_larger_than_any_may_be_is_refused_before_it_is_sent(self, log: Log) -> None:
        place = log.topic(), 0
        writer = begun(log)
        large = Outgoing(place[0], bytes(16 * 1024 * 1024 + 1), None, 0)
        assert refused(lambda: writer.write([large])) == "MSG_SIZE_TOO_LARGE"
        assert ends(log, place) == [0, 0]

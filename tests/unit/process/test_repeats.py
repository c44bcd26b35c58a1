"""A library's messages that come again and again."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from eventveil.cli.run import configure_logging
from eventveil.process.repeats import LONGEST_SECONDS, MOST, SECONDS, Repeats

LIBRARY, OWN = logging.getLogger("a_library.conn"), logging.getLogger("eventveil.worker.app")


class Written:
    """What a handler with the filter writes, at the times that a test sets."""

    def __init__(self) -> None:
        self.now, self._text = 100.0, io.StringIO()
        self.handler = logging.StreamHandler(self._text)
        self.handler.addFilter(Repeats(lambda: self.now))

    @property
    def lines(self) -> list[str]:
        return self._text.getvalue().splitlines()


@pytest.fixture
def written() -> Iterator[Written]:
    made = Written()
    for logger in (LIBRARY, OWN):
        logger.addHandler(made.handler)
    yield made
    for logger in (LIBRARY, OWN):
        logger.removeHandler(made.handler)


def test_one_message_in_thirty_seconds_is_written_and_says_how_many_were_not(written: Written) -> None:
    for second in range(45):
        written.now = 100.0 + second
        LIBRARY.error("Unable connect to node with id %s: %s", second % 3, "refused")
    assert written.lines == [
        "Unable connect to node with id 0: refused",
        "Unable connect to node with id 0: refused [29 messages like this one were left out]",
    ]


def test_a_message_that_keeps_coming_is_written_less_and_less_often(written: Written) -> None:
    for second in range(0, 4 * int(LONGEST_SECONDS), 10):
        written.now = 100.0 + second
        LIBRARY.error("at %s", second)
    times = [int(line.split()[1]) for line in written.lines]
    assert times == [0, 30, 90, 210, 450, 930, 1830, 2730]


def test_a_message_that_had_ceased_is_written_as_at_first(written: Written) -> None:
    for second in (0, 10, 30, 100, 110, 130):
        written.now = 100.0 + second
        LIBRARY.error("at %s", second)
    shown = [line.split(" [")[0] for line in written.lines]
    assert shown == ["at 0", "at 30", "at 100", "at 130"]


def test_other_templates_and_levels_are_other_messages(written: Written) -> None:
    LIBRARY.error("one %s", 1)
    LIBRARY.warning("one %s", 1)
    LIBRARY.error("other %s", 1)
    assert len(written.lines) == 3


def test_our_own_messages_all_pass(written: Written) -> None:
    for _ in range(5):
        OWN.warning("stopped processing %s", "raw, partition 1")
    assert len(written.lines) == 5


def test_messages_that_are_all_different_take_no_more_room_than_some(written: Written) -> None:
    (repeats,) = written.handler.filters
    assert isinstance(repeats, Repeats)
    for number in range(3 * MOST):
        LIBRARY.error(f"number {number}")
    assert len(written.lines) == 3 * MOST
    assert len(repeats._known) <= MOST
    written.now += SECONDS
    LIBRARY.error("number 1")
    assert written.lines[-1] == "number 1"


@pytest.mark.parametrize("code", [3, -1, 82, 113])
def test_no_offset_of_a_raw_topic_is_written(
    code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What aiokafka says of a commit that failed has it, and two of them are a count of events."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    configure_logging("info")

    async def answer(_: object) -> object:
        return SimpleNamespace(topics=[("raw.events", [(0, code)])])

    coordinator = GroupCoordinator.__new__(GroupCoordinator)
    coordinator.group_id, coordinator.generation, coordinator.member_id = "shop", 3, "member"
    coordinator.coordinator_id, coordinator._send_req = 1, answer
    for offset in (4711, 4712):
        with pytest.raises(KafkaError):
            asyncio.run(
                coordinator._do_commit_offsets(
                    None, {TopicPartition("raw.events", 0): OffsetAndMetadata(offset, "")}
                )
            )
    written = capsys.readouterr().err
    assert "OffsetCommit failed for group shop" in written
    # Not their first digits: the milliseconds of a line's time may be those.
    assert "4711" not in written
    assert "4712" not in written

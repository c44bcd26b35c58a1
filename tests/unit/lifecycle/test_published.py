"""What a take-over reads of the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from eventveil.kafka.barrier import nonce_key
from eventveil.kafka.cluster import Topic
from eventveil.kafka.reader import StoredRecord
from eventveil.lifecycle.published import Public
from eventveil.model.errors import StateRefused
from eventveil.model.records import TopicPartition
from eventveil.tasks.release import ReleaseState
from tests.unit.read.making import record

LEDGER = TopicPartition("ledger", 0)
ENTRY = orjson.dumps({"stream": "visits", "instance": "i", "timestamp": 7})


class Given(Public):
    """The ledger holds these records."""

    def __init__(self, *records: StoredRecord) -> None:
        self._ledger, self._records = LEDGER, records
        self._cluster = cast(Any, SimpleNamespace(first_offsets=lambda places: dict.fromkeys(places, 0)))

    def _backwards(self, *_: Any, **__: Any) -> Iterator[tuple[int, list[StoredRecord]]]:
        yield 0, [*self._records]


def check(*records: StoredRecord) -> None:
    state = ReleaseState("i", 1, 8, 0)
    assert state.published == 7
    Given(*records).check_ledger({"visits": state}, {"visits": 0}, "changelog")


def test_a_nonce_that_was_committed_because_a_marker_was_lost_says_nothing() -> None:
    check(StoredRecord(0, b"visits", ENTRY), StoredRecord(1, nonce_key("app-sanitize-0"), None))


def test_any_other_record_is_refused() -> None:
    with pytest.raises(StateRefused, match="offset 1: the record is not a ledger entry"):
        check(StoredRecord(0, b"visits", ENTRY), StoredRecord(1, b"somebody", None))


@pytest.mark.parametrize(("newest", "logged"), [(7, False), (5, True), (0, False)])
def test_a_sink_without_the_newest_releases_is_logged(
    newest: int, logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """One that shows none at all may be new."""
    records = [StoredRecord(newest, b"visits", record(newest, stream="visits"))] if newest else []
    sinks = {"visits": Topic("sink", "id", 1)}
    Given(*records).check_sinks({"visits": ReleaseState("i", 1, 8, 0)}, sinks)
    assert (
        "releases of timestamps up to 5 of stream visits, but releases up to 7 were" in caplog.text
    ) == logged

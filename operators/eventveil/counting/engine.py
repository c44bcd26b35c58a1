"""Taking the counts of an engine in one source partition: the last one before completion is the count.

Records are counts of a timestamp and column, or watermarks: every timestamp that ends at or before the time
of a watermark is complete in its partition. Which counts hold is a function of the log alone: of append times
where there are no watermarks, as for events, else of the order of counts and watermarks (docs/engines.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eventveil.counting.assigner import AssignedEvent, Assigner, Rows
from eventveil.counting.counter import OUTCOMES, CounterState, StreamCounter
from eventveil.counting.rejections import Rejections
from eventveil.counting.users import Users
from eventveil.decoding.bulk import picked
from eventveil.decoding.places import Envelope, compile_field, is_there
from eventveil.decoding.rules import LARGEST_COUNT, CountFinder, Decoder, Reason, Rejection, parse, weigh
from eventveil.model import fields, timeline
from eventveil.model.partitioners import Growth
from eventveil.model.records import NO_APPEND_TIME
from eventveil.model.topology import ENDLESS, Stream
from eventveil.process.memory import Held

#: A count that replaces one of the same timestamp and column; a record that says what is complete.
CORRECTED, WATERMARK = "corrected", "watermark"
#: What can become of a record of an engine.
ENGINE_OUTCOMES = (*(one for one in OUTCOMES if one != "bounded"), CORRECTED, WATERMARK)


class _Watermark(NamedTuple):
    """A watermark that says more than those before it."""

    offset: int
    time: int


class _Number(NamedTuple):
    """A count that holds for now; ``column`` None: it is to be ignored."""

    name: bytes
    column: int | None
    timestamp: int
    amount: int


class _OpenCounts:
    """The counts of a timestamp that is not closed: of each name its column and the last number."""

    __slots__ = ("first_offset", "latest")

    def __init__(self, offset: int) -> None:
        self.first_offset = offset
        self.latest: dict[bytes, tuple[int, int]] = {}

    def counts(self, columns: int) -> NDArray[np.int64]:
        """By column; names that are in no column of their own add up in the one that takes them.

        Up to LARGEST_COUNT, above which no mechanism takes a count. What is cut off never raises the
        sensitivity: where two sums differ by d, the smaller ones of each and a bound differ by d at most.
        """
        sums = np.zeros(columns, np.int64)
        for column, count in self.latest.values():
            # At once, because the sum of very many would not fit; their order changes nothing.
            sums[column] = min(sums[column] + count, LARGEST_COUNT)
        return sums


class EngineCounter(StreamCounter):
    """See ``StreamCounter``: what is bounded there is replaced here, because the engine has bounded it."""

    def __init__(
        self, stream: Stream, partitions: int, state: CounterState, users: Users, grown: Sequence[Growth] = ()
    ) -> None:
        super().__init__(stream, partitions, state, users, grown)
        source, rules = stream.source, stream.timeline
        assert source.count is not None, "a stream of events has no counts"
        self._decoder, self._number = Decoder(source, stream.counts), CountFinder(source.count)
        self._find_mark = None if source.watermark is None else compile_field(source.watermark)
        self._mark_text = source.watermark is not None and fields.is_text(source.watermark)
        self._by_watermark = source.watermark is not None and rules.lateness < ENDLESS
        if self._by_watermark:
            # Not the append time says what is late, and nothing is before the clock says that it is due.
            stream = replace(stream, timeline=replace(rules, lateness=ENDLESS))
        self._verdict = Assigner(stream, partitions, state.partition, state.first, users, grown).verdict
        self._numbers: dict[int, _OpenCounts] = {}
        #: Ascending. The state has the last one below the resume offset, so that reading again from there
        #: meets the same watermarks before the same records.
        self._marks: list[_Watermark] = [_Watermark(state.resume - 1, time) for time in state.passed[:1]]

    @property
    def completed(self) -> int | None:
        """See ``StreamCounter.completed``."""
        if not self._by_watermark:
            return None
        if not self._marks:
            return 0
        rules = self.stream.timeline
        return (self._marks[-1].time - rules.origin) // rules.interval

    def observe(self, rows: Rows) -> Rejections:
        """See ``StreamCounter.observe``."""
        start, told = np.searchsorted(rows.offsets, (self.resume, self.judged)).tolist()
        chosen = np.arange(start, len(rows.offsets))
        refused: list[tuple[int, Rejection]] = []
        outcomes: Counter[str] = Counter()
        for row, value in zip(chosen.tolist(), picked(rows.values, chosen), strict=True):
            what = self._take_in(rows, row, value)
            if row < told:
                continue
            if isinstance(what, Rejection):
                refused.append((row, what))
            else:
                outcomes[what] += 1
        rejections = Rejections.of(refused)
        self.outcomes.update(outcomes)
        self.outcomes.update(rejections.outcomes())
        return rejections

    def _take_in(self, rows: Rows, row: int, value: bytes | None) -> str | Rejection:
        """Take a record in; what becomes of it."""
        offset, append_time = int(rows.offsets[row]), int(rows.append_times[row])
        around = rows.envelope(row)
        document = self._document(rows, value)
        if self._find_mark is not None:
            mark = self._find_mark(None if isinstance(document, Rejection) else document, around)
            if is_there(mark):
                return self._marked(mark, offset, append_time)
        number = self._judge(offset, append_time, document, around)
        return number if isinstance(number, Rejection) else self._put(number, offset)

    def _document(self, rows: Rows, value: bytes | None) -> Any | Rejection:
        source = self.stream.source
        if self._decoder.reads_value:
            return parse(value, source.max_bytes, source.format, rows.schemas)
        return weigh(value, source.max_bytes)

    def _judge(self, offset: int, append_time: int, document: Any, around: Envelope) -> _Number | Rejection:
        following = 1 if self._by_watermark else self.next
        placed = self._verdict(offset, append_time, document, following, self.boundaries, around)
        assert placed is not None, "counts pass no filter"
        if isinstance(placed, Rejection):
            return placed
        if (refused := self._misplaced(placed)) is not None:
            return refused
        count = self._number(document, around)
        if isinstance(count, Rejection):
            return count
        return _Number(placed.event.user, placed.event.column, placed.timestamp, count)

    def _misplaced(self, placed: AssignedEvent) -> Rejection | None:
        """What is wrong with the time of a count."""
        timestamp = placed.timestamp
        after = placed.event.time - timeline.start_of(self.stream.timeline, timestamp)
        if after:
            return Rejection(Reason.MISALIGNED, f"{after} ms after the start of timestamp {timestamp}")
        completed = self.completed
        if completed is not None and timestamp <= max(completed, self.next - 1):
            return Rejection(Reason.LATE, f"behind the watermark of timestamp {timestamp}")
        return None

    def _put(self, number: _Number, offset: int) -> str:
        if number.column is None:
            return "ignored"
        opened = self._numbers.setdefault(number.timestamp, _OpenCounts(offset))
        known = number.name in opened.latest
        opened.latest[number.name] = number.column, number.amount
        return CORRECTED if known else "counted"

    def _marked(self, found: Any, offset: int, append_time: int) -> str | Rejection:
        """Take note of what a watermark says."""
        time = self._decoder.timed(found, as_text=self._mark_text)
        if isinstance(time, Rejection):
            return time
        if not self._by_watermark:
            return WATERMARK
        if append_time == NO_APPEND_TIME:
            return Rejection(Reason.NO_APPEND_TIME, "the topic does not stamp records with LogAppendTime")
        rules = self.stream.timeline
        ahead = time - rules.interval - append_time
        if ahead > rules.max_ahead:
            return Rejection(Reason.TOO_FAR_AHEAD, f"a watermark that completes {ahead} ms ahead")
        if time >= 0 and (not self._marks or time > self._marks[-1].time):
            self._marks.append(_Watermark(offset, time))
        return WATERMARK

    def _take_counts(self, timestamp: int) -> NDArray[np.int64] | None:
        """See ``StreamCounter._take_counts``."""
        opened = self._numbers.pop(timestamp, None)
        return None if opened is None else opened.counts(len(self.stream.counts.labels))

    def _first_offsets(self) -> Iterator[int]:
        """See ``StreamCounter._first_offsets``."""
        return (opened.first_offset for opened in self._numbers.values())

    def state_at(self, position: int) -> CounterState:
        """See ``StreamCounter.state_at``."""
        state = super().state_at(position)
        before = [*takewhile(lambda mark: mark.offset < state.resume, self._marks)]
        return state.replace(passed=tuple(mark.time for mark in before[-1:]))

    def resume_from(self, state: CounterState) -> None:
        """See ``StreamCounter.resume_from``."""
        super().resume_from(state)
        needless = len([*takewhile(lambda mark: mark.offset < state.resume, self._marks)]) - 1
        del self._marks[: max(0, needless)]

    @property
    def last_open(self) -> int | None:
        """See ``StreamCounter.last_open``."""
        return max(self._numbers, default=None)

    @property
    def held(self) -> Held:
        """What is in memory: open timestamps and the counts in them."""
        # A list, at once: metrics may ask while another thread counts.
        opened = [*self._numbers.values()]
        return Held(len(opened), sum(len(one.latest) for one in opened), 0)

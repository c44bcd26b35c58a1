"""What would happen to the records of a sample: the worker's own verdicts, by the worker's own code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from eventveil.counting.counter import CounterState
from eventveil.decoding.rules import NOT_PUBLIC, Reason, ValueDecoder
from eventveil.doctor.sample import SampledRecord, SourceSample, by_partition, chunk
from eventveil.kinds.registry import kind_of
from eventveil.model import fields, timeline
from eventveil.model.records import Outgoing, Schemas
from eventveil.model.topology import ENDLESS, ReadingStream, Stream
from eventveil.tasks.aggregate import PartitionAggregator

_INSTANCE = "doctor"
#: A header that records get to be judged as if their user could be read.
_USER = "eventveil-doctor-user"
#: At most this many examples of a reason are kept.
_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Example:
    """A record that does not count, the ``detail`` that its dead letter would have, its value and key."""

    partition: int
    offset: int
    detail: str
    value: bytes | None
    key: bytes | None = None

    @classmethod
    def of(cls, record: SampledRecord, detail: str) -> Example:
        """The example that a record is."""
        return cls(record.partition, record.offset, detail, record.value, record.key)


@dataclass
class Verdicts:
    """What became of the records: by outcome, with details and some examples by reason."""

    outcomes: Counter[str] = field(default_factory=Counter)
    details: dict[str, Counter[str]] = field(default_factory=dict)
    _examples: dict[str, dict[str, list[Example]]] = field(default_factory=dict)

    @property
    def judged(self) -> int:
        """How many there were."""
        return self.outcomes.total()

    @property
    def reasons(self) -> dict[str, int]:
        """How many do not count, by reason, the most common first."""
        known = {reason.value for reason in Reason}
        return {outcome: number for outcome, number in self.outcomes.most_common() if outcome in known}

    @property
    def lost(self) -> int:
        """How many do not count for a reason: neither what the bound leaves out nor ``unknown: ignore``."""
        return sum(self.reasons.values())

    @property
    def left_out(self) -> int:
        """How many the file leaves out: by its filter, or in an unlisted column by ``unknown: ignore``."""
        return self.outcomes["filtered"] + self.outcomes["ignored"]

    @property
    def asked(self) -> int:
        """How many there were that the file does not leave out."""
        return self.judged - self.left_out

    @property
    def counting(self) -> int:
        """How many would count; what the bound leaves out of a user's contributions is among them."""
        return self.asked - self.lost

    def examples(self, reason: str) -> list[Example]:
        """Some that do not count for a reason: those with the commonest detail first, each as they came."""
        commonest = [detail for detail, _ in self.details[reason].most_common(_EXAMPLES)]
        return [one for detail in commonest for one in self._examples[reason][detail]][:_EXAMPLES]

    def refuse(self, reason: str, example: Example) -> None:
        """One that does not count."""
        kept = self._examples.setdefault(reason, {}).setdefault(example.detail, [])
        if len(kept) < _EXAMPLES:
            kept.append(example)
        self.details.setdefault(reason, Counter())[example.detail] += 1


def judge(stream: Stream, sample: SourceSample, now: int, *, stamped: bool = False) -> Verdicts:
    """The verdicts of a stream over a sample at wall clock time ``now``.

    ``stamped``: as if the topic had stamped the records with their own times. The stream begins with
    ``timeline.start``, or with its first timestamp if that is left open.
    """
    verdicts = Verdicts()
    for part in _parts(stream, sample, now, stamped=stamped):
        part.judge(verdicts)
    return verdicts


def judge_behind_users(stream: Stream, sample: SourceSample, now: int) -> Verdicts:
    """The verdicts had the topic stamped the records, and had each a user of its own where it belongs."""
    if sample.rules is not None:
        # They refuse a stream that looks at headers.
        stream, sample = sample.rules(stream), replace(sample, rules=lambda one: one)
    # No record that is yet to be re-keyed is in a wrong partition.
    raw = None if sample.is_file else stream.source.topic_of_events
    source = replace(stream.source, user=fields.HEADERS + _USER, user_type="string", raw=raw)
    records = [
        one._replace(headers=(*one.headers, (_USER, b"%d" % at))) for at, one in enumerate(sample.records)
    ]
    return judge(replace(stream, source=source), replace(sample, records=records), now, stamped=True)


def unlisted(stream: Stream, sample: SourceSample, now: int) -> Counter[str]:
    """The values of the column field that are no public column, as texts in quotes, whatever `unknown` says.

    Only of records whose user can be read.
    """
    if not kind_of(stream).raw_events:
        return Counter()
    counts = replace(stream.counts, unknown="dead-letter", unknown_column=None)
    details = judge(replace(stream, counts=counts), sample, now, stamped=True).details
    found = details.get(Reason.UNKNOWN_COLUMN.value, Counter())
    return Counter({detail.removesuffix(NOT_PUBLIC): number for detail, number in found.items()})


def judge_values(stream: ReadingStream, sample: SourceSample) -> Verdicts:
    """The verdicts of a value stream, which has neither users nor times."""
    decoder, verdicts = ValueDecoder(stream), Verdicts()
    for record in sample.records:
        _, reason = decoder.decode(record.value, sample.schemas)
        verdicts.outcomes["read" if reason is None else reason.value] += 1
        if reason is not None:
            detail = f"the value at {stream.source.value} would be 0"
            verdicts.refuse(reason.value, Example.of(record, detail))
    return verdicts


class _Part:
    """Records that one task of a worker would judge, as that of partition ``partition`` of ``partitions``."""

    def __init__(
        self,
        stream: Stream,
        partitions: int,
        partition: int,
        records: Iterable[SampledRecord],
        renumber: bool,
        schemas: Schemas,
    ) -> None:
        rules, start = stream.timeline, stream.timeline.start
        first = 1 if start is None else max(1, timeline.timestamp_of(rules, start))
        state = CounterState(_INSTANCE, partition, first, first, 0, 0)
        self._name = stream.name
        self._aggregator = PartitionAggregator(partitions, {stream.name: (stream, state)})
        self._chunk, self._records = chunk(records, partition=partition, renumber=renumber, schemas=schemas)

    def judge(self, verdicts: Verdicts) -> None:
        """Add what becomes of them."""
        while self._aggregator.position < self._chunk.next_offset:
            self._aggregator.process(self._chunk)
        outcomes = self._aggregator.counters[self._name].outcomes
        verdicts.outcomes.update(outcomes)
        if batch := self._aggregator.dead_letter_batch():
            for letter in batch.dead_letters:
                self._refuse(letter, verdicts)

    def _refuse(self, letter: Outgoing, verdicts: Verdicts) -> None:
        told = {name: value.decode() for name, value in letter.headers}
        record = self._records[int(told["eventveil.offset"])]
        verdicts.refuse(told["eventveil.reason"], Example.of(record, told["eventveil.detail"]))


def _parts(stream: Stream, sample: SourceSample, now: int, *, stamped: bool) -> Iterator[_Part]:
    if sample.rules is not None:
        yield _Part(sample.rules(stream), 1, 0, sample.records, False, sample.schemas)
        return
    records = sample.records
    if stream.source.append_time == "boundary":
        # What is late only a worker's boundaries can tell; what is too far ahead is so by now.
        rules = replace(stream.timeline, lateness=ENDLESS)
        stream = replace(stream, timeline=rules, source=replace(stream.source, append_time="broker"))
        records = [one._replace(time=now, appended=True) for one in records]
    elif stamped:
        records = [one._replace(appended=True) for one in records]
    if stream.source.raw is not None:
        source = replace(stream.source, topic=stream.source.raw, raw=None)
        yield _Part(replace(stream, source=source), 1, 0, records, True, sample.schemas)
        return
    for partition, some in sorted(by_partition(records).items()):
        yield _Part(stream, sample.partitions, partition, some, False, sample.schemas)

"""A stream continues over other topics: more partitions, another topic, a log that lost records. Pure.

Nothing that was released changes, nothing is charged, and the budget stays as it is. Only the place changes
from which the counts of unreleased timestamps come. So this, unlike a change of terms, can be done in the
middle of a timestamp; it must be, because no worker can complete one.

**Every user is in one partition at each timestamp.** With more partitions users move. Timestamps before
``since`` are counted in as many partitions as before, the later ones in all. ``since`` is above every
timestamp that some partition has closed, so that none is counted under two numbers; what lies in another
partition than its timestamp says is a dead letter. A new partition reports the timestamps before ``since``
too, with nothing in them, so that a release waits for the same partitions at all times.

**No event counts because of another user's.** One that was judged under the old number, and counts under the
new one alone, must not count only where it is read again, for that depends on events of others
(``eventveil.lifecycle.migration``). The take-over that follows judges all records anew that can belong to
timestamps to come. Where the state lacks the boundaries that say from where on, ``since`` is above every
timestamp of which an event can have been judged, unless the new number is a multiple of the old one: who
belongs to a partition among twice as many belonged there before.

**An event counts once.** What was closed stays closed: what is read again, in whatever topic, can only count
in a timestamp of which this partition has reported nothing. Where partial counts are gone with their topic,
these timestamps are opened again; nothing of them was released.

**What is lost** are events that were not read, or whose partial counts are gone and which cannot be read
again. The timestamps that may lack some are named, in the ledger too, before they are released.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from eventveil.counting.counter import CounterState
from eventveil.formats.change import SAME_INSTANCE, Difference
from eventveil.lifecycle.manifest import ManifestRecord
from eventveil.lifecycle.migration import Checkpoint, MigrationTarget, change_of, goes_on
from eventveil.model import timeline
from eventveil.model.errors import StateRefused, Unsettled, doubt
from eventveil.model.partitioners import Growth
from eventveil.model.records import Outgoing, TopicPartition
from eventveil.model.topology import Stream, Timeline
from eventveil.topology.changes import DISCOVERS, REKEY_ANEW

#: What a change of topics is called in the ledger, beside the number of partitions.
SINCE, LOST_FROM, LOST_UNTIL = "source.partitions.since", "lost.from", "lost.until"
AGAIN = "partials.again"
_SOURCE, _PARTIALS = "source.topic_id", "partials.topic_id"
_PARTITIONS = "source.partitions"
_BEGIN_ANEW = "Give the stream a new name and a new sink (whose epsilon adds up)"


@dataclass(frozen=True, slots=True)
class Log:
    """A source partition as it is now: where its state is kept, its first offset and its end.

    What is left of the next timestamp to be released lies from offset ``again`` on. Events are judged
    anew from offset ``anew`` on (``eventveil.lifecycle.beginning.judged_anew_from``); None: nobody has asked.
    It had been read up to offset ``reached``, as far as the state tells. If some of that is gone and others
    have its offsets, ``end`` is where what is left of it ends.
    """

    place: TopicPartition
    begin: int
    end: int
    again: int
    anew: int | None = None
    reached: int = 0


@dataclass(frozen=True, slots=True)
class InputTopics:
    """The source and the topic of partial counts as they are ``now``; ``logs`` by partition of the source."""

    source_id: str
    partials_id: str
    partials_begin: int
    partials_end: int
    now: int
    logs: Mapping[int, Log]


@dataclass(frozen=True, slots=True)
class _NewPartition:
    """A partition of the new topics; ``lost`` tells whether timestamps may lack events of it."""

    manifest: ManifestRecord
    state: CounterState
    lost: bool


@dataclass(frozen=True, slots=True)
class Relocation:
    """Genesis and state of every source partition of the new topics, and what the ledger says of it."""

    counting: Mapping[TopicPartition, tuple[ManifestRecord, CounterState]]
    partials_id: str
    #: Whether partial counts are made again; those that are left are not read any more.
    again: bool
    differences: Mapping[str, Difference]
    lost: tuple[int, int] | None

    def records(self, checkpoint: Checkpoint, target: MigrationTarget) -> list[Outgoing]:
        """The transaction that continues there, under the fields that follow: all of it, or nothing."""
        state = (
            checkpoint.state.replace(resume=target.partials_end, read=0) if self.again else checkpoint.state
        )
        if DISCOVERS in checkpoint.manifest.fields:
            # What was counted before has no partial counts of all partitions that there are from now on.
            state = state.replace(searched=state.next)
        moved = replace(
            checkpoint,
            counting={
                place: (target.with_cluster(manifest).replace(fields=target.fields), state)
                for place, (manifest, state) in self.counting.items()
            },
            manifest=checkpoint.manifest.replace(topic_id=self.partials_id),
            state=state,
        )
        change = change_of(checkpoint, target, {**checkpoint.differences(target), **self.differences})
        return goes_on(moved, target, change)


def relocate(
    stream: Stream, checkpoint: Checkpoint, inputs: InputTopics, since: int | None = None
) -> Relocation | None:
    """What becomes of a stream over these topics; None if it reads them already.

    ``since`` is the first timestamp that is counted in more partitions, by default the first that is not due.
    Raises Unsettled where that cannot be sound by what the brokers say, and StateRefused if ``since`` is too
    early.
    """
    known = next(manifest for manifest, _ in checkpoint.counting.values())
    before: int = checkpoint.manifest.fields[_PARTITIONS]
    differences: dict[str, Difference] = {}
    if known.topic_id != inputs.source_id:
        differences[_SOURCE] = Difference(known.topic_id, inputs.source_id)
    if checkpoint.manifest.topic_id != inputs.partials_id:
        differences[_PARTIALS] = Difference(checkpoint.manifest.topic_id, inputs.partials_id)
    again = (
        _PARTIALS in differences
        or checkpoint.state.resume < inputs.partials_begin
        or max(checkpoint.state.resume, checkpoint.state.read) > inputs.partials_end
    )
    grown = len(inputs.logs) > before
    _check(stream, differences, fewer=len(inputs.logs) < before, grown=grown, again=again)
    parts = [
        _moved(
            stream,
            checkpoint,
            manifest,
            state,
            inputs,
            replaced=_SOURCE in differences,
            grown=grown,
            again=again,
        )
        for manifest, state in checkpoint.counting.values()
    ]
    if grown:
        earlier = max((one.since for one in known.grown), default=0)
        first = max(checkpoint.state.next, earlier, *(part.state.next for part in parts))
        lacking = _SOURCE not in differences and checkpoint.lacking_boundaries(stream)
        if len(inputs.logs) % before and lacking:
            first = max(first, _never_judged(stream, checkpoint, inputs.now))
        # By the clock: what is closed depends on which records were read, and this becomes public.
        default = max(first, timeline.last_due(stream.timeline, inputs.now) + 1)
        growth = Growth(default if since is None else _declared(stream, since, first), before)
        differences[SINCE] = Difference(None, growth.since)
        differences[_PARTITIONS] = Difference(before, len(inputs.logs))
        parts += [
            _added(stream, checkpoint, known, inputs, number) for number in range(before, len(inputs.logs))
        ]
        parts = [
            replace(one, manifest=one.manifest.replace(grown=(*one.manifest.grown, growth))) for one in parts
        ]
    elif since is not None:
        raise doubt(
            f"stream {stream.name}",
            f"its source has {before} partitions as before",
            "Leave the timestamp out",
        )
    lost = None
    if any(part.lost for part in parts):
        lost = lost_span(stream.timeline, checkpoint.state.next, inputs.now)
        differences |= {LOST_FROM: Difference(None, lost[0]), LOST_UNTIL: Difference(None, lost[1])}
    if again:
        differences[AGAIN] = Difference(None, checkpoint.state.next)
    if not differences:
        return None
    return Relocation(
        counting={inputs.logs[one.manifest.partition].place: (one.manifest, one.state) for one in parts},
        partials_id=inputs.partials_id,
        again=again,
        differences=differences,
        lost=lost,
    )


def check_inputs(
    checkpoint: Checkpoint, differences: Mapping[str, Difference], *, accepts_loss: bool
) -> dict[str, Difference]:
    """The differences again.

    Raises StateRefused where settings that make another generation change with the topics, and Unsettled
    where events are lost, as the brokers say, and nobody has accepted that.
    """
    others = [name for name in differences if not name.startswith(SAME_INSTANCE)]
    if others:
        raise StateRefused(
            f"stream {checkpoint.stream}",
            f"{', '.join(others)} changed along with its topics, and can only change between two timestamps",
            "Restore these settings, run `eventveil migrate TOPOLOGY --apply`, and change them afterwards",
        )
    if LOST_FROM in differences and not accepts_loss:
        first, last = differences[LOST_FROM].new, differences[LOST_UNTIL].new
        raise doubt(
            f"stream {checkpoint.stream}",
            f"events that were not released yet are gone; timestamps {first} to {last} may lack some",
            "Restore them if that is possible. `eventveil migrate TOPOLOGY --lost --apply` continues without "
            "them: what is left of these timestamps is released, the ledger names the timestamps, and "
            "nothing is charged twice",
        )
    return dict(differences)


def doubtful(stream: str, differences: Mapping[str, Difference]) -> Unsettled | None:
    """What a change of topics rests on that an old answer of a broker could have made up.

    No broker makes up partitions that are not there.
    """
    told = [name for name in (_SOURCE, _PARTIALS, AGAIN, LOST_FROM) if name in differences]
    return Unsettled(f"stream {stream}", f"{', '.join(told)} changed") if told else None


def settled(stream: str, found: Mapping[str, Difference], now: Mapping[str, Difference]) -> None:
    """Raise Unsettled unless a change is still the one that was ``found``, except for timestamps."""
    same = found.keys() == now.keys() and all(
        found[name] == now[name] for name in found.keys() - {SINCE, LOST_FROM, LOST_UNTIL, AGAIN}
    )
    if not same:
        what = f"{', '.join(sorted(now)) or 'nothing'} changed, but before that {', '.join(sorted(found))}"
        raise Unsettled(f"stream {stream}", what)


def _check(
    stream: Stream, differences: Mapping[str, Difference], *, fewer: bool, grown: bool, again: bool
) -> None:
    what, remedy = None, _BEGIN_ANEW
    if fewer:
        what = "its source has fewer partitions than its state, so it is another topic or another cluster"
    elif stream.source.raw is not None and (grown or _SOURCE in differences):
        remedy = REKEY_ANEW
        what = (
            "its events are re-keyed, and how far each partition of the topic has been passed on is part of "
            "its state: neither another number of partitions nor another topic can take their place"
        )
    elif stream.source.append_time == "boundary" and again:
        what = (
            "its partial counts are gone, and with append_time: boundary nothing else records what was late"
        )
    if what is not None:
        raise doubt(f"stream {stream.name}", what, remedy)


def _moved(
    stream: Stream,
    checkpoint: Checkpoint,
    manifest: ManifestRecord,
    state: CounterState,
    inputs: InputTopics,
    *,
    replaced: bool,
    grown: bool,
    again: bool,
) -> _NewPartition:
    """A partition that was there before."""
    log = inputs.logs[state.partition]
    target, needed, judged, boundaries = state.next, state.resume, state.judged, state.boundaries
    passed = state.passed
    if again:
        # What was closed and not released is gone, and is counted once more.
        target, needed = checkpoint.state.next, min(log.again, state.resume)
    if replaced:
        needed, judged, gone, boundaries = log.begin, log.begin, True, boundaries[:0]
    elif max(state.resume, state.judged, log.reached, *(one.offset for one in boundaries)) > log.end:
        # Its end is gone: what was read may come again at other offsets, and is judged again.
        needed, judged, gone = log.again, log.again, True
        boundaries = tuple(one for one in boundaries if one.offset <= log.end)
        # Marks of what is gone say nothing about what is read again; those to come do.
        passed = ()
    else:
        if log.anew is not None and log.anew < log.begin:
            needed = min(needed, log.anew)
        # Among the events of a timestamp that is counted again the first ones may be gone.
        gone = needed < log.begin or (again and 0 < log.begin == needed)
    resume = max(needed, log.begin)
    if stream.source.watermark is not None and (replaced or needed != state.resume):
        # What was read before says nothing of another topic, and those behind are met again.
        passed = ()
    # Who belongs to another partition now is to get a dead letter.
    judged = resume if grown else max(judged, resume)
    moved = state.replace(next=target, resume=resume, judged=judged, boundaries=boundaries, passed=passed)
    begins = log.begin if replaced else manifest.resume
    if gone:
        # What was given up is not missed again.
        begins = max(begins, log.begin)
    return _NewPartition(manifest.replace(topic_id=inputs.source_id, resume=begins), moved, gone)


def _added(
    stream: Stream, checkpoint: Checkpoint, known: ManifestRecord, inputs: InputTopics, number: int
) -> _NewPartition:
    """A partition that was not there before; it reports all timestamps that are still to be released."""
    log, target = inputs.logs[number], checkpoint.state.next
    manifest = known.replace(topic_id=inputs.source_id, partition=number, resume=log.begin)
    state = CounterState(known.instance, number, known.first, target, log.begin, log.begin)
    return _NewPartition(manifest, state, log.begin > 0)


def lost_span(rules: Timeline, following: int, now: int) -> tuple[int, int]:
    """The first and the last timestamp that may lack events where some are lost, from ``following`` on.

    All that may have events by ``now`` (epoch ms): when the first record that is left was appended would say
    more, but the answer becomes public, and that record is somebody's.
    """
    return following, max(following, timeline.timestamp_of(rules, now + rules.max_ahead))


def _never_judged(stream: Stream, checkpoint: Checkpoint, now: int) -> int:
    """By boundaries, the first timestamp of which every event until ``now`` (epoch ms) was too far ahead."""
    rules, states = stream.timeline, [state for _, state in checkpoint.counting.values()]
    reached = [state.first - 1 for state in states]
    # Those of a clock that has been set back are ahead of ``now``.
    reached += [state.boundaries[-1].last for state in states if state.boundaries]
    following = max(timeline.timestamp_of(rules, now + rules.clock_skew), *reached) + timeline.step_of(rules)
    latest = timeline.deadline_of(rules, following) + rules.max_ahead
    return timeline.timestamp_of(rules, latest) + 1


def _declared(stream: Stream, since: int, first: int) -> int:
    if since < first:
        what = f"events of timestamp {since} may be judged already, for as many partitions as the source had"
        raise StateRefused(
            f"stream {stream.name}",
            what,
            "Choose the timestamp at which producers began to use the new partitions, if it is later than"
            " that, or leave it out",
        )
    return since

"""The re-keying stage over other topics: a topic of events with more partitions, another topic, lost records.

Pure. A user's events go to the partition of the re-keyed topic that they went to before, whatever partition
of the topic of events they come from: the number of re-keyed partitions stays as it is, so nobody counts in
two places. What was passed on stays passed on, and is not read again.

**A timestamp closes once every partition of events has been passed on up to its deadline.** Partitions that
were added belong to them from the change on: until they have left a mark, nothing closes. Timestamps that had
been closed before stay closed; what lies in the new partitions for them is late, and a dead letter.

**What is lost** are events that were not passed on. The timestamps that may lack some are named, in the
ledger too, before they are released.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eventveil.formats.change import Difference
from eventveil.lifecycle.manifest import ManifestRecord
from eventveil.model.errors import doubt
from eventveil.model.topology import Source
from eventveil.tasks.repartition import RekeyerState, fingerprint
from eventveil.topology.changes import REKEY_ANEW

#: What a change is called in the ledger; the number is of partitions of events.
_SOURCE, _EVENTS = "source.topic_id", "source.partitions.events"
Stage = Mapping[int, tuple[ManifestRecord, RekeyerState]]


@dataclass(frozen=True, slots=True)
class RawLog:
    """A partition of the topic of events: its first offset and its end.

    ``reached`` is as in ``eventveil.lifecycle.relocation.Log``.
    """

    begin: int
    end: int
    reached: int = 0


@dataclass(frozen=True, slots=True)
class RawTopic:
    """A topic of events, with its ``logs`` by partition, and the topic that it is re-keyed into."""

    topic_id: str
    target_id: str
    target_partitions: int
    logs: Mapping[int, RawLog]


@dataclass(frozen=True, slots=True)
class Rerouting:
    """The stage over the new topics, what the ledger says of it, and whether events are ``lost``."""

    stage: Stage
    differences: Mapping[str, Difference]
    lost: bool


def reroute(source: Source, stage: Stage, inputs: RawTopic) -> Rerouting | None:
    """What becomes of the stage of a source over these topics; None if it reads them already.

    Raises Unsettled if the topic has fewer partitions than the state, by what the brokers say.
    """
    known = next(manifest for manifest, _ in stage.values())
    before, now = len(stage), len(inputs.logs)
    if now < before:
        what = f"{known.topic} has fewer partitions than its state, so it is another topic or another cluster"
        raise doubt(f"topic {known.topic}", what, REKEY_ANEW)
    replaced = known.topic_id != inputs.topic_id
    differences: dict[str, Difference] = {}
    if replaced:
        differences[_SOURCE] = Difference(known.topic_id, inputs.topic_id)
    if now > before:
        differences[_EVENTS] = Difference(before, now)
    fields = fingerprint(source, now, inputs.target_id, inputs.target_partitions)
    moved: dict[int, tuple[ManifestRecord, RekeyerState]] = {}
    lost = False
    for number, log in sorted(inputs.logs.items()):
        manifest, state = stage.get(number) or _added(known, number, log)
        position, gone = _position(state, log, replaced=replaced, added=number >= before)
        lost |= gone
        manifest = manifest.replace(topic_id=inputs.topic_id, fields=fields)
        # Of a log that has got shorter, or of another one, they say nothing.
        captures = tuple(one for one in state.captures if one.end <= log.end and not replaced)
        moved[number] = manifest, state.replace(position=position, captures=captures)
    if not differences and not lost:
        return None
    return Rerouting(moved, differences, lost)


def _added(known: ManifestRecord, number: int, log: RawLog) -> tuple[ManifestRecord, RekeyerState]:
    manifest = known.replace(partition=number, resume=log.begin)
    return manifest, RekeyerState(known.instance, number, log.begin)


def _position(state: RekeyerState, log: RawLog, *, replaced: bool, added: bool) -> tuple[int, bool]:
    """Where to read on, and whether something before that is lost."""
    if replaced:
        return log.begin, True
    if added:
        return log.begin, log.begin > 0
    if state.position < log.begin:
        return log.begin, True
    if max(state.known, log.reached) > log.end:
        # What was passed on of it is not lost; what followed may be.
        return min(state.position, log.end), True
    return state.position, False

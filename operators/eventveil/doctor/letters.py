"""What the dead letters of a topology say: by reason and remedy, with samples. Raw data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eventveil.counting.written import explained, written
from eventveil.decoding.places import Envelope
from eventveil.decoding.rules import Reason, UserFinder
from eventveil.doctor.diagnosis import is_absent, remedy_of, setting_of
from eventveil.doctor.editing import Edits
from eventveil.doctor.framing import REASONS, framing_of
from eventveil.doctor.pointers import absent
from eventveil.doctor.sample import SampledRecord
from eventveil.doctor.wording import shown_value
from eventveil.model.fields import listed
from eventveil.model.records import Headers
from eventveil.model.timeline import format_rfc3339
from eventveil.model.topology import Stream, Topology

#: What the names of headers begin with that a dead letter has beside those of its record.
_OURS = "eventveil."


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter; place and ``appended`` (epoch ms, -1 if not known) are those of the original record."""

    stream: str
    reason: str
    detail: str
    topic: str
    partition: int
    offset: int
    appended: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @classmethod
    def read(cls, record: SampledRecord) -> Letter | None:
        """None if it is not a dead letter of Eventveil."""
        told = {name: value.decode(errors="replace") for name, value in record.headers if value is not None}
        try:
            return cls(
                told["eventveil.stream"],
                Reason(told["eventveil.reason"]).value,
                told["eventveil.detail"],
                told["eventveil.topic"],
                int(told["eventveil.partition"]),
                int(told["eventveil.offset"]),
                int(told["eventveil.timestamp"]),
                record.key,
                record.value,
                tuple(one for one in record.headers if not one[0].startswith(_OURS)),
            )
        except (KeyError, ValueError):
            return None

    @property
    def record(self) -> SampledRecord:
        """The record as it was."""
        return SampledRecord(self.partition, self.offset, self.value, self.key, self.headers)

    def fields(self) -> dict[str, Any]:
        """For programs."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "appended": None if self.appended < 0 else format_rfc3339(self.appended),
            "detail": self.detail,
            "key": shown_value(self.key),
            "value": shown_value(self.value),
        }


@dataclass
class LetterGroup:
    """The letters of one stream, reason and remedy: ``number`` of them, the newest ``samples``.

    ``similar`` are fields like one that none of them has, each with how many have it.
    """

    stream: str
    reason: str
    setting: str
    place: str
    remedy: str
    number: int = 0
    samples: list[Letter] = field(default_factory=list)
    similar: Sequence[tuple[str, int]] = ()

    def fields(self) -> dict[str, Any]:
        """For programs."""
        return {
            "stream": self.stream,
            "reason": self.reason,
            "letters": self.number,
            "setting": self.setting,
            "place": self.place,
            "remedy": self.remedy,
            "similar": [[*one] for one in self.similar],
            "samples": [one.fields() for one in self.samples],
        }


def groups(
    topology: Topology, text: str, letters: Sequence[Letter], partitions: Mapping[str, int], samples: int
) -> list[LetterGroup]:
    """The letters by stream, reason and what is to be done, the highest pile first.

    So a user that is null and a column that is a number, both of the wrong type, are told apart. ``text`` is
    that of the topology; ``partitions`` are those of the topics that events come from.
    """
    edits, streams = Edits(text), {one.name: one for one in topology.streams}
    found: dict[tuple[str, str, str, str], list[Letter]] = {}
    for letter in letters:
        stream = streams.get(letter.stream)
        setting = setting_of(letter.reason, letter.detail, stream)
        remedy = remedy_of(letter.reason, letter.detail, stream)
        found.setdefault((letter.stream, letter.reason, setting, remedy), []).append(letter)
    made = []
    for (name, reason, setting, general), some in found.items():
        newest = sorted(some, key=lambda one: (one.appended, one.offset))[-samples:] if samples else []
        place, remedy = topology.path, "the file has no stream of this name: it is from before a change"
        similar: Sequence[tuple[str, int]] = ()
        if name in streams:
            place = edits.place(topology.path, ("streams", name, *setting.split(".")))
            remedy = _remedy(streams[name], reason, some, partitions) or general
            similar = _similar(streams[name], setting, some)
        made.append(LetterGroup(name, reason, setting, place, remedy, len(some), newest[::-1], similar))
    return sorted(made, key=lambda group: (-group.number, group.stream, group.reason, group.remedy))


def _similar(stream: Stream, setting: str, letters: Sequence[Letter]) -> list[tuple[str, int]]:
    """Fields like those of a setting where no record has them. No registry is asked here."""
    records = [one.record for one in letters if is_absent(one.reason, one.detail)]
    if not records:
        return []
    source = stream.source
    asked = listed(getattr(source, setting.removeprefix("source.")))
    return [one for field in absent(asked, records, source) for one in field.similar]


def _remedy(
    stream: Stream, reason: str, letters: Sequence[Letter], partitions: Mapping[str, int]
) -> str | None:
    """What the letters of a group say together, beyond what their details say."""
    number = partitions.get(stream.source.topic_of_events, 0)
    if reason == Reason.WRONG_PARTITION and number:
        # Keys may be where a partitioner puts them and not be the users.
        find = UserFinder(stream.source).read
        found = ((find(one.value, Envelope(one.key)), one.partition) for one in letters)
        if users := [(user, partition) for user, partition in found if user]:
            return explained(written(users, number), stream.source.partitioner, refused=True)
    if reason not in REASONS:
        return None
    # No registry is asked here.
    return framing_of(one.value for one in letters).remedy(stream.source.format, False)

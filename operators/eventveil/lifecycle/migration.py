"""From one generation of a stream to the next: a migration to other terms, or a reset to run again. Pure.

A stream is changed between two timestamps. All that was counted must have been released, so that no count
was made under two sets of rules; then the change, the new genesis records and the new states are written in
one transaction. The stream gets a new instance: what a forgotten worker might still write for the old one is
refused wherever it is read. Only a change of the sink, which touches neither counts nor budget, keeps
the instance.

**What is spent across a migration.** Let the terms change from (epsilon e1, window w1) to (e2, w2), let
w = max(w1, w2) and e = max(e1, e2). The new mechanism begins with an empty ledger and a *bridge*: the spends
of the last w - 1 timestamps, and the limit e for windows of w timestamps that hold one of these.

*Claim.* (a) A window of w1 timestamps before the change spends at most e1, one of w2 after it at most e2.
(b) A window of w timestamps that straddles the change spends at most e, unless nothing was spent in it after
the change: what cannot be paid is repeated. (c) If w2 <= w1, it spends at most e in any case, unless it
straddles an earlier change too.

*Proof.* (a) is the doing of each ledger by itself. (b) Let s be the last timestamp of the window W, after the
change, at which something was spent. When it was, the bridge held the w timestamps that end at s, for s is
one of the w - 1 after the change; their sum, the spend included, was at most e, or it would have been
refused. They contain all that W spent: W begins no earlier than they do, as it ends no earlier than s, and
spent nothing after s. (c) If nothing was spent after the change, W spent what its timestamps before the
change did; these are fewer than w = w1 and under the terms of (e1, w1), so it is at most e1 by (a).

**With Gaussian noise** what is spent is mu squared, and so is what the claim is about. Let d be the larger
delta of both terms; where both are of Laplace noise, and Gaussian noise came within a window of them, the
largest of its deltas. If there is one, windows spend at most what (e, d) allows as mu squared; a timestamp of
pure epsilon e_i counts with pi / 2 e_i^2 among them (``eventveil.privacy.gaussian``, steps of pure epsilon).
So a window that straddles the change is (e, d)-private, unless nothing was spent in it after the change. The
proof is the same, word for word. Laplace noise may become Gaussian noise, but not the other way around:
windows across the change would have a delta of which the file says nothing.

The bridge is in the units of the new ledger. Past spends, exact rationals, are rounded up, the limit is
rounded down, so the sum in exact terms stays within e as well. A stream may change again while a bridge
stands: the spends are taken from the public ledger, which has all of them, and every bridge that still has
timestamps to go is built anew with its own w and e, so that (b) holds for each change. Two changes without a
release between them count as one, from the first terms to the last: a larger epsilon that was in force for
no timestamp buys nothing.

**What is read again.** A counter goes on from the first event that counts in an open timestamp. So how far
back records are read again depends on whose events count. That is sound only while each of them is judged as
before. Where the rules change, a record that did not count may count now, and would count only if an event of
somebody else lies before it. So all records are judged anew then that can belong to timestamps to come: from
an offset that follows from clocks alone (``eventveil.lifecycle.beginning.judged_anew_from``). A take-over
does that wherever the state was not written by a worker of the same version of Eventveil: after a change that
was made here, and after an upgrade, whose rules may be others.

**What a reset costs.** It begins a new generation with a fresh budget, over events that were released
before. Its releases are additional: over the same users and timestamps the epsilons of all generations add
up. Nothing of that can be taken back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from eventveil.audit.history import History
from eventveil.counting.counter import CounterState
from eventveil.formats.change import SAME_INSTANCE, Change, Difference, Kind, Terms, with_delta
from eventveil.formats.release import decided
from eventveil.lifecycle.manifest import ManifestRecord
from eventveil.mechanisms.base import Mechanism
from eventveil.mechanisms.publishing import units_of
from eventveil.mechanisms.registry import OWN
from eventveil.model import timeline
from eventveil.model.errors import StateRefused
from eventveil.model.records import Outgoing, TopicPartition
from eventveil.model.topology import Level, Stream
from eventveil.tasks.release import ReleaseState
from eventveil.topology.changes import (
    DISCOVERS,
    LEVELS,
    NEW_STREAM,
    REFUSED_BY_BOUNDARY,
    REFUSED_BY_DISCOVERY,
    SOUND,
    anew,
    changed,
    is_refused,
    reason,
    without_followers,
)
from eventveil.topology.scalars import duration_text

#: What settings begin with by which events are judged.
_JUDGING = ("source.", "counts.")
#: Where columns are found in the data.
_MEANT = " (what finding columns leaves of it)"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the changelogs hold of a stream: manifest and state by place; ``place`` is that of the budget."""

    stream: str
    counting: Mapping[TopicPartition, tuple[ManifestRecord, CounterState]]
    place: TopicPartition
    manifest: ManifestRecord
    state: ReleaseState

    @property
    def terms(self) -> Terms:
        """The terms of the life so far."""
        fields = self.manifest.fields
        window = fields["mechanism.window"]
        terms = Terms(
            fields["mechanism.kind"], Fraction(fields["mechanism.epsilon"]), window, units_of(window)
        )
        return with_delta(terms, {name: fields.get(f"mechanism.{name}") for name in ("noise", "delta")})

    @property
    def pending_entries(self) -> list[bytes]:
        """The ledger entries of releases that are decided and charged but not published yet."""
        return [self.state.entry(decided(one)) for one in self.state.pending]

    @property
    def by_boundary(self) -> bool:
        """Whether boundaries tell what is late (``eventveil.counting.boundaries``)."""
        return self.manifest.fields.get("source.append_time") == "boundary"

    def lacking_boundaries(self, stream: Stream) -> list[TopicPartition]:
        """Where it is not known from which offset on events would have to be judged anew."""
        if not stream.source.has_boundaries:
            return []
        return [
            place
            for place, (manifest, state) in self.counting.items()
            if manifest.begin_by_boundaries(stream.timeline, state) is None
        ]

    def check_between_timestamps(self) -> None:
        """Raise StateRefused unless all that was counted has been released, or is decided."""
        counted = {state.next for _, state in self.counting.values()}
        if counted == {self.state.next}:
            return
        raise StateRefused(
            f"stream {self.stream}",
            f"it is released up to timestamp {self.state.next - 1}, but counted up to {min(counted) - 1} in "
            f"one partition and up to {max(counted) - 1} in another",
            "Run the worker with the former topology until it has caught up, stop it between two timestamps, "
            "and try again",
        )

    def differences(self, target: MigrationTarget) -> dict[str, Difference]:
        """Which fields of the topology are not those that the state was made for.

        Raises StateRefused if the places do not agree, for then they are not of one life.
        """
        old, budget_fields = self.manifest.fields, target.budget_fields
        for place, (manifest, _) in self.counting.items():
            checkpoint = (manifest.instance, manifest.first) == (self.manifest.instance, self.manifest.first)
            names = {*manifest.fields, *target.fields}
            if not checkpoint or any(manifest.fields.get(name) != old.get(name) for name in names):
                raise StateRefused(
                    str(place),
                    f"its genesis record of stream {self.stream} is not that of {self.place.topic}",
                    "Restore the changelogs from one backup, or give the stream a new name and a new sink",
                )
        return {
            name: Difference(old.get(name), budget_fields.get(name))
            for name in sorted({*old, *budget_fields})
            if old.get(name) != budget_fields.get(name)
        }


def check_sound(checkpoint: Checkpoint, differences: Mapping[str, Difference]) -> None:
    """Raise StateRefused, naming every field that no migration can change, and why.

    Nothing but the sink can be migrated at another level than w-event: only windows have bridges.
    """
    unsound = {
        name: reason(name)
        for name, one in differences.items()
        if name not in SOUND or is_refused(name, one.new)
    }
    # Other append times have another `max_ahead` by default: that is not a change of its own.
    if checkpoint.by_boundary and "source.append_time" not in differences:
        unsound |= {name: why for name, why in REFUSED_BY_BOUNDARY.items() if name in differences}
    finds = DISCOVERS in checkpoint.manifest.fields
    if finds:
        # That columns are found no more, or that an event counts twice, is worse than a change of how.
        worse = {name for name in unsound if not name.startswith("counts.columns.")}
        if DISCOVERS in differences and differences[DISCOVERS].new is None:
            worse |= unsound.keys()
        others = (name for name in differences if not name.startswith(SAME_INSTANCE) and name not in worse)
        unsound |= dict.fromkeys(others, REFUSED_BY_DISCOVERY)
    kind = checkpoint.terms.mechanism
    kinds = {kind, differences.get("mechanism.kind", Difference(kind, kind)).new}
    if not _levels(kinds) <= {"w-event"} or "plugin.level" in checkpoint.manifest.fields:
        unsound |= {name: LEVELS for name in differences if not name.startswith(SAME_INSTANCE)}
    _check_format(checkpoint, differences)
    rekeyed = checkpoint.manifest.fields.get("source.repartition") is not None
    meant = {"mechanism.epsilon": _MEANT} if finds else {}
    refused = [
        f"{changed(name, *differences[name], meant.get(name, ''))}, which cannot be migrated: {unsound[name]}"
        for name in sorted(without_followers(unsound, {}))
    ]
    if refused:
        raise StateRefused(f"stream {checkpoint.stream}", "; ".join(refused), anew(unsound, rekeyed=rekeyed))


def check_judged_anew(stream: Stream, checkpoint: Checkpoint, differences: Mapping[str, Difference]) -> None:
    """Raise StateRefused if events would be judged by other rules, and from where on is not known."""
    judging = [one for one in differences if one.startswith(_JUDGING) and not one.startswith(SAME_INSTANCE)]
    if judging and (places := checkpoint.lacking_boundaries(stream)):
        rules = stream.timeline
        step = rules.interval * timeline.step_of(rules)
        longest = duration_text(rules.max_ahead + rules.lateness + 2 * step)
        raise StateRefused(
            f"stream {checkpoint.stream}",
            f"{', '.join(judging)} changed, so events are judged anew, and the boundaries in {places[0]} do"
            " not show from which offset on: version 0.2.0 kept too few of them, the partition was added,"
            " or no worker ran for long",
            f"Restore these settings, run the workers for {longest}, and migrate then",
        )


def _levels(kinds: Collection[object]) -> set[Level]:
    """What the epsilons of kinds cover; of a plug-in the manifest says it."""
    return {mechanism.level for kind, mechanism in OWN.items() if kind in kinds}


def _check_format(checkpoint: Checkpoint, differences: Mapping[str, Difference]) -> None:
    """Raise StateRefused where one topic would hold releases of two formats: a reader expects one."""
    if "sink.format" not in differences:
        return
    old, new = (one or "json" for one in differences["sink.format"])
    place = f"stream {checkpoint.stream}"
    if "sink.topic_id" not in differences:
        sink = checkpoint.manifest.fields["sink.topic"]
        what = f"sink.format was {old} and is {new} now, and readers of {sink}"
        raise StateRefused(
            place, f"{what} expect one format", "Give the stream another sink.topic for the new format"
        )
    if checkpoint.state.pending:
        what = f"{len(checkpoint.state.pending)} releases are decided as {old} and not published yet"
        raise StateRefused(
            place, what, "Run the worker with the former topology until they are, stop it, and try again"
        )


def check_reset(checkpoint: Checkpoint, differences: Mapping[str, Difference], start: int) -> None:
    """Raise StateRefused unless the stream can begin again at timestamp ``start``, with another sink only."""
    place = f"stream {checkpoint.stream}"
    if DISCOVERS in checkpoint.manifest.fields:
        what = "it cannot be reset: its columns are found in the data, which would be charged again"
        raise StateRefused(place, what, NEW_STREAM)
    if "local" in _levels({checkpoint.terms.mechanism}):
        what = "it cannot be reset: its threshold is public, and producers would keep using it"
        raise StateRefused(place, what, NEW_STREAM)
    if checkpoint.by_boundary:
        what = (
            "with append_time: boundary the offset from which the events of a timestamp can be found is not "
            "known, and which were late is only while their partial counts are kept"
        )
        raise StateRefused(
            place,
            what,
            "`eventveil replay` the topic, or give the stream a new name and a new sink"
            " (whose epsilon adds up)",
        )
    changed = [name for name in differences if not name.startswith("sink.")]
    if changed:
        what = f"{', '.join(changed)} changed, and a reset changes nothing but the sink"
        raise StateRefused(place, what, "Migrate first, or afterwards")
    if "sink.topic_id" not in differences:
        what = "its sink holds the releases of this generation, and a timestamp must have one release only"
        raise StateRefused(place, what, "Give the stream another sink.topic for the new generation")
    first = checkpoint.manifest.first
    if checkpoint.manifest.fields.get("source.repartition") is not None and start < first:
        what = f"events are re-keyed only from timestamp {first} on, and {start} is before it"
        raise StateRefused(place, what, f"Choose a timestamp from {first} on")
    if not 1 <= start < checkpoint.state.next:
        what = f"timestamp {start} was not released yet: it is at {checkpoint.state.next}"
        raise StateRefused(
            place, what, f"Choose a timestamp in 1..{checkpoint.state.next - 1}, or run the worker"
        )


@dataclass(frozen=True, slots=True)
class MigrationTarget:
    """What a stream is migrated to.

    ``fields`` are those of the genesis of a counting place, ``budget_fields`` those of the budget's.
    ``ledger`` is the stream's partition of the ledger, ``sink`` the topic of its releases. ``partials_end``
    is the end of its partition of partial counts: what lies before it is of the old life. ``cluster`` and
    ``ledger_id`` are those of ``ManifestRecord``, for records that do not have them.
    """

    instance: str
    terms: Terms
    fields: Mapping[str, Any]
    budget_fields: Mapping[str, Any]
    ledger: TopicPartition
    sink: str
    partials_end: int
    cluster: str
    ledger_id: str

    def with_cluster(self, manifest: ManifestRecord) -> ManifestRecord:
        """The genesis record, completed if it does not name its cluster."""
        if manifest.cluster is not None:
            return manifest
        return manifest.replace(cluster=self.cluster, ledger_id=self.ledger_id)


def migration(
    checkpoint: Checkpoint, target: MigrationTarget, history: History, mechanism: Mechanism
) -> list[Outgoing]:
    """The transaction of a migration: all of it, or nothing.

    ``history`` holds all releases of the life, pending ones included; ``mechanism`` is fresh. Raises
    StateRefused if something was counted and not released, or if ledger and state contradict each other.
    """
    state = checkpoint.state
    change, snapshot = _change(checkpoint, target, "migration", state.next), None
    if not change.restarts:
        # Only the sink is another one; with a sink that is gone no worker could bring a timestamp to its end.
        return goes_on(replace(checkpoint, counting={}), target, change_of(checkpoint, target))
    checkpoint.check_between_timestamps()
    if state.mechanism is not None:
        if (history.first, history.next) != (state.first, state.next):
            raise StateRefused(
                f"stream {checkpoint.stream}",
                f"the ledger has timestamps {history.first} to {history.next - 1}, "
                f"the state {state.first} to {state.next - 1}",
                "`eventveil ledger` shows more; restore the topics from one backup",
            )
        mechanism.inherit(state.mechanism.encode(), history.bridges(change))
        if counts_alike(change.fields):
            mechanism.recall(state.mechanism.encode())
        snapshot = mechanism.snapshot().decode()
    successor = state.settled.replace(
        instance=target.instance,
        resume=target.partials_end,
        mechanism=snapshot,
        # Every partition has counted all that was released, so what came too late for it lies before the end.
        missing=(),
    )
    return [
        *_ledger_records(checkpoint, target, change),
        *_released(checkpoint, target),
        *_manifest_records(checkpoint, target, checkpoint.manifest.first, {}),
        checkpoint.place.record(checkpoint.stream.encode(), successor.encode()),
        *(
            place.record(checkpoint.stream.encode(), counter.replace(instance=target.instance).encode())
            for place, (_, counter) in checkpoint.counting.items()
        ),
    ]


def counts_alike(fields: Iterable[str]) -> bool:
    """Whether events are counted as before where these fields have changed: nothing but terms and topics."""
    return all(name.startswith(("mechanism.", *SAME_INSTANCE)) for name in fields)


def change_of(
    checkpoint: Checkpoint, target: MigrationTarget, differences: Mapping[str, Difference] | None = None
) -> Change:
    """A change that keeps the instance: neither counts nor budget follow other rules."""
    same = replace(target, instance=checkpoint.manifest.instance)
    change = _change(checkpoint, same, "migration", checkpoint.state.next)
    return change if differences is None else replace(change, fields=differences)


def goes_on(checkpoint: Checkpoint, target: MigrationTarget, change: Change) -> list[Outgoing]:
    """The transaction of a change of the same life, in the middle of a timestamp if need be.

    It writes genesis and state of the budget and of all counting places that ``checkpoint`` has.
    """
    manifest = target.with_cluster(checkpoint.manifest).replace(fields=target.budget_fields)
    return [
        *_ledger_records(checkpoint, target, change),
        *_released(checkpoint, target),
        *(one.at(place) for place, (one, _) in checkpoint.counting.items()),
        *(
            place.record(checkpoint.stream.encode(), one.encode())
            for place, (_, one) in checkpoint.counting.items()
        ),
        manifest.at(checkpoint.place),
        checkpoint.place.record(checkpoint.stream.encode(), checkpoint.state.settled.encode()),
    ]


def _released(checkpoint: Checkpoint, target: MigrationTarget) -> list[Outgoing]:
    released = (decided(one).published for one in checkpoint.state.pending)
    return [Outgoing(target.sink, one, checkpoint.stream.encode()) for one in released]


def reset(
    checkpoint: Checkpoint, target: MigrationTarget, first: int, resume: Mapping[TopicPartition, int]
) -> list[Outgoing]:
    """The transaction of a reset to timestamp ``first``: all of it, or nothing.

    ``resume`` says for each counting place where the events of ``first`` begin. The states are deleted; the
    new genesis records say where to begin. What was decided but not published is charged in the ledger,
    because somebody may have seen it; the sink is that of the new generation and does not get it.
    """
    return [
        *_ledger_records(checkpoint, target, _change(checkpoint, target, "reset", first)),
        *_manifest_records(checkpoint, target, first, resume),
        *(
            place.record(checkpoint.stream.encode(), None)
            for place in (*checkpoint.counting, checkpoint.place)
        ),
    ]


def _change(checkpoint: Checkpoint, target: MigrationTarget, kind: Kind, start: int) -> Change:
    return Change(
        stream=checkpoint.stream,
        kind=kind,
        start=start,
        fields=checkpoint.differences(target),
        before=checkpoint.terms,
        after=target.terms,
        instance=target.instance,
        previous=checkpoint.manifest.instance,
    )


def _ledger_records(checkpoint: Checkpoint, target: MigrationTarget, change: Change) -> list[Outgoing]:
    values = [*checkpoint.pending_entries, change.encode()]
    return [target.ledger.record(checkpoint.stream.encode(), value) for value in values]


def _manifest_records(
    checkpoint: Checkpoint, target: MigrationTarget, first: int, resume: Mapping[TopicPartition, int]
) -> list[Outgoing]:
    manifest = {
        place: target.with_cluster(manifest).replace(
            instance=target.instance,
            fields=target.fields,
            first=first,
            resume=resume.get(place, manifest.resume),
        )
        for place, (manifest, _) in checkpoint.counting.items()
    }
    manifest[checkpoint.place] = target.with_cluster(checkpoint.manifest).replace(
        instance=target.instance, fields=target.budget_fields, first=first, resume=target.partials_end
    )
    return [one.at(place) for place, one in manifest.items()]

"""The checks of one stream's ledger and sink."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from eventveil.audit.charges import (
    ChangeWindows,
    Charges,
    HorizonSums,
    SeenInSink,
    SinkOrder,
    WindowSums,
    exceeding,
)
from eventveil.audit.columns import ColumnsAudit
from eventveil.audit.control import Asks, ControlAudit
from eventveil.audit.findings import DiscoveryCost, Finding, Kept, Report, Violations, discovery_in
from eventveil.audit.records import Entry, FoundRecord
from eventveil.formats.another_file import other_columns, other_timeline, shown_timeline
from eventveil.formats.change import Change, ChangeLimit, Options, Terms, change_limits, stated_terms
from eventveil.formats.span import Span
from eventveil.mechanisms.registry import PAN, known
from eventveil.model.records import TopicPartition
from eventveil.model.timeline import format_rfc3339, start_of
from eventveil.model.topology import Discover, Timeline
from eventveil.privacy.ledger import Spend
from eventveil.topology.changes import is_refused
from eventveil.topology.scalars import exact_number

if TYPE_CHECKING:
    from eventveil.mechanisms.base import Guarantee, Mechanism

_NO_ENTRY = "no ledger entry has the digest of this record: it was published without a charge"
_SAME_FILE = "Is it the file that the workers run?"
_WHICH_FILE = f"{_SAME_FILE} It may be from before a migration, or not migrated to yet."
_TWO_DRAWS = "different records were visible for this timestamp"


class StreamAudit:
    """The audit of one stream: ``entry`` for the whole ledger, ``record`` for the whole sink, ``report``."""

    def __init__(
        self,
        stream: str,
        timeline: Timeline,
        first: Terms,
        last: Terms,
        partition: int,
        guarantee: Guarantee,
        columns: int,
        options: tuple[Options, Options],
        asks: Asks | None = None,
        discovery: DiscoveryCost | None = None,
        found: tuple[str, Discover] | None = None,
        names: tuple[str, ...] = (),
    ) -> None:
        """``first`` are the terms that the ledger begins with, ``last`` those that it should end with.

        ``partition`` is the stream's partition of the ledger. ``guarantee`` is that of the last terms; the
        level is that of all, as no migration changes it. ``options`` are the first and the last. ``asks``:
        see ``ControlAudit``; None but for local reports. ``discovery``: what a window pays for columns that
        are found in the data, ``found`` the first column and how the others are; None where they are listed.
        ``names`` are then those of the columns of a release; without any they are not compared.
        """
        self.stream, self._timeline = stream, timeline
        self._terms, self._last_terms, self._partition = first, last, partition
        self._discovery = discovery
        #: The entry that came last since the last change.
        self._newest: Mapping[str, Any] = {}
        self._columns, (self._options, self._last_options) = columns, options
        self._charges = Charges()
        self._guarantee = guarantee
        self._sums, self._published = self._new_sums(first.window), WindowSums(first.window)
        self._changes: list[Change] = []
        self._change_windows: list[ChangeWindows] = []
        #: The changes up to the last one of terms.
        self._crossed: tuple[Change, ...] = ()
        #: Where the terms began that hold now; releases before ``_sink_since`` are in another sink.
        self._since = self._sink_since = self._windows_before = 0
        self._instance: str | None = None
        self._aborted_entries: dict[tuple[int, bytes], FoundRecord] = {}
        #: Digests that the ledger does not have, by timestamp: of violations, and of what is newer than it.
        self._others: dict[int, set[bytes]] = {}
        self._two_draws: set[int] = set()
        #: The timestamp of the first charged record, by partition of the sink.
        self._first_records: dict[int, int] = {}
        self._order = SinkOrder()
        self._listed = names
        #: How the columns of charged releases differ from those of the file, in words.
        self._other_columns = ""
        #: The timelines that charged releases show; two of them are as good as many.
        self._timelines: set[Timeline | None] = set()
        self._flag = Violations(stream)
        #: Of a stream of local reports.
        self._control = ControlAudit(asks, self._flag) if asks else None
        #: Of a stream whose columns are found in the data.
        self._names = ColumnsAudit(*found, first.window, self._flag) if found else None
        self._repeated = self._aborted = self._undecided = self._foreign = 0
        self._forfeited = self._looks = 0
        self._recount = False

    def ledger_begins(self, topic: str, partition: int, offset: int) -> None:
        """Take note where a partition of the ledger begins; nothing is ever removed from it, so at 0."""
        if partition == self._partition and offset > 0:
            place = TopicPartition(topic, partition).at(offset)
            self._flag("I7", None, place, "the ledger begins here: entries before this were removed")

    def entry(self, found: FoundRecord) -> None:
        """Check a record of the ledger."""
        self._check_key(found)
        change = Change.read(found.fields)
        if change is not None:
            if found.committed:
                self._check_partition(change.start, found)
                self._change(change, found)
            return
        entry = Entry.read(found)
        if entry is None:
            if found.committed:
                self._flag("I7", found.timestamp, found, "this is not a ledger entry")
            return
        if not found.committed:
            # The entry that was committed in its place may come later.
            self._aborted_entries.setdefault((entry.timestamp, entry.digest), found)
            return
        self._check_partition(entry.timestamp, found)
        known = self._charges.find(entry.timestamp)
        if known is None:
            self._check_order(entry, found)
            self._check_terms(entry, found)
            self._newest = found.fields or {}
            self._check_spends(entry, found)
            if self._control is not None:
                self._control.entry(entry, found)
            self._charges.add(
                entry, found.offset, found.statement, free=entry.fresh or self._may_predict(entry)
            )
        elif self._charges.digest(known) != entry.digest:
            self._charged_twice(entry, found, known)
        elif self._charges.statement(known) != found.statement:
            self._flag("I7", entry.timestamp, found, "an earlier entry charged this release differently")
        else:
            self._repeated += 1

    def _charged_twice(self, entry: Entry, found: FoundRecord, known: int) -> None:
        """Two releases of a timestamp were drawn, and both are charged: both count in every window."""
        if not self._charges.add_again(known, entry):
            self._repeated += 1
            return
        self._recount = True
        first = f"{self._charges.digest(known).hex()[:16]} at offset {self._charges.offsets[known]}"
        what = "an earlier entry charged another release"
        self._flag(
            "I1",
            entry.timestamp,
            found,
            what,
            f": {first}, {entry.digest.hex()[:16]} here; both are added up",
        )

    def record(self, found: FoundRecord, *, newer: bool = False) -> None:
        """Check a record of the sink.

        ``newer``: it may have been committed after the ledger was read, so its entry may be missing, if it
        is of a timestamp beyond the ledger's last. The same is allowed to aborted records at any time,
        because their release may be published again later.
        """
        if found.stream != self.stream:
            self._foreign += 1
            return
        self._check_key(found)
        timestamp = found.timestamp
        if timestamp is None or found.counts is None:
            self._flag("I2", timestamp, found, "this is not a release record, yet it is of this stream")
            return
        if self._names is not None and found.committed:
            self._names.record(timestamp, found)
        known = self._charges.find(timestamp)
        if known is not None and self._charges.digest(known) == found.digest:
            self._charged_record(found, timestamp, known)
        else:
            self._others.setdefault(timestamp, set()).add(found.digest)
            if known is None and timestamp > self._last and (newer or not found.committed):
                self._undecided += 1
            elif not self._charges.charged_again(timestamp, found.digest):
                self._flag("I2", timestamp, found, _NO_ENTRY)
        self._check_one_draw(timestamp, found)

    def asked(self, found: FoundRecord, *, newer: bool = False) -> None:
        """Check a record of the control topic; ``newer``: see ``record``."""
        if self._control is not None:
            self._control.record(found, newer=newer)
        elif found.committed:
            self._flag("I7", None, found, "nothing may be asked for: this is not a stream of local reports")

    def report(self, kept: Kept = "everything") -> Report:
        """The outcome, once all records have been handed in; ``kept`` says what the sink still has."""
        for (timestamp, digest), found in self._aborted_entries.items():
            self._aborted_entry(timestamp, digest, found)
        self._aborted_entries.clear()
        if self._control is not None:
            self._control.finish()
        if self._names is not None:
            self._names.finish()
        timestamps, largest = self._charges.timestamps, self._largest()
        matched_from = self._matched_from(kept)
        for index in range(len(timestamps)):
            if matched_from is not None and timestamps[index] >= matched_from:
                self._check_published(index)
        for timestamp in self._charges.unpaid():
            what = "the release is not fresh, yet it does not repeat the one before it: it was not charged"
            self._flag("I7", timestamp, "the sink", what)
        for timestamp, place in self._order.fallen(complete=kept == "everything"):
            self._flag("I7", timestamp, place, "the release comes after a later one in its partition")
        self._check_file()
        return Report(
            stream=self.stream,
            releases=len(timestamps),
            first=timestamps[0] if timestamps else None,
            last=timestamps[-1] if timestamps else None,
            windows=self._windows,
            level=self._guarantee.level,
            largest=largest,
            units=self._terms.units,
            epsilon=self._terms.epsilon,
            delta=self._terms.delta,
            discovery=self._discovery,
            findings=self._flag.listed,
            violations=self._flag.violations,
            matched_from=matched_from,
            repeated=self._repeated,
            aborted=self._aborted,
            undecided=self._undecided,
            foreign=self._foreign,
            changes=tuple(self._changes),
            windows_before=self._windows_before,
            forfeited=self._forfeited,
            looks=self._looks,
            sink_since=self._sink_since,
            threshold=self._control.threshold if self._control else None,
        )

    def _check_file(self) -> None:
        """Ask about the file where terms, timeline or columns are not what it says."""
        # What not all of them show is a matter of these releases, not of the file.
        shown = next(iter(self._timelines)) if len(self._timelines) == 1 else None
        timelines = "" if shown is None else other_timeline(shown, self._timeline)
        for what, told in (
            ("the columns of its releases differ from those of this file", self._other_columns),
            ("the timeline of its releases differs from that of this file", timelines),
        ):
            if told:
                self._flag("I7", None, "the sink", what, f": {told}. {_SAME_FILE}", explains=True)
        self._check_last_terms()

    def _check_last_terms(self) -> None:
        """Ask about the file where the changes or the newest entry have other terms, or both."""
        ended, options, last = self._terms, self._options, self._last_options
        if (ended, options) == (self._last_terms, last):
            with suppress(ValueError):
                ended = stated_terms(self._newest) if self._newest else ended
            if ended == self._last_terms:
                return
            # An entry states no other options.
            options, last = _noise(ended), _noise(self._last_terms)
        file = _words(self._last_terms, last)
        told = f": {_words(ended, options)} in the ledger, {file} in this file. {_WHICH_FILE}"
        self._flag(
            "I7", None, "the ledger", "it ends with other terms than this file has", told, explains=True
        )

    def _largest(self) -> int:
        """The largest sum of a window or horizon under the present terms.

        What came out of order is added up here, once everything is known: second charges of a timestamp, and
        entries that were left out before.
        """
        if not self._recount:
            return self._sums.largest
        sums, units = self._new_sums(self._terms.window), self._terms.units
        for timestamp, spend in zip(self._charges.timestamps, self._charges.spends, strict=True):
            if timestamp < self._since:
                continue
            if sums.add(timestamp, spend) > units >= self._sums.largest:
                what = "with what was charged twice, the window that ends here spent more than epsilon"
                self._flag("I7", timestamp, "the ledger", what)
        for one in self._change_limits():
            for timestamp in exceeding(one, self._crossed, self._charges):
                what = "with what was charged twice, a window across a change of terms spent more than it may"
                self._flag("I7", timestamp, "the ledger", what)
        return sums.largest

    def _new_sums(self, window: int) -> WindowSums | HorizonSums:
        user = self._guarantee.level == "user"
        return HorizonSums(window, self._guarantee.renews) if user else WindowSums(window)

    @property
    def _windows(self) -> int:
        """How many windows or horizons the timestamps under the present terms hold, or begin."""
        window = self._terms.window
        span = max(0, self._last - max(self._since, self._first) + 1) if self._last else 0
        if self._guarantee.level != "user":
            return max(1, span - window + 1) if span else 0
        return -(-span // window) if self._guarantee.renews else min(span, 1)

    def begins(self, change: Change, found: FoundRecord) -> None:
        """Take note that a reset, which was found in the ledger, begins this generation."""
        self._instance = change.instance
        # A reset changes no option, and its record says nothing of delta.
        if change.after._replace(delta=self._terms.delta) != self._terms:
            self._flag("I7", change.start, found, "the generation begins under different terms than it says")

    def ends(self, change: Change, found: FoundRecord) -> None:
        """Take note that a reset, which was found in the ledger, ends this generation."""
        self._check_instance(change, found)

    def _change(self, change: Change, found: FoundRecord) -> None:
        """Continue under other terms: sum windows up anew, and those across the change beside them."""
        try:
            change = change.under(self._options)
        except ValueError as error:
            self._flag("I7", change.start, found, "no Gaussian noise has such terms", f": {error}")
            return
        self._check_instance(change, found)
        if self._last and change.start != self._last + 1:
            self._flag("I7", change.start, found, "the change does not follow the entry before it")
        options = change.options(self._options, "old")
        if (change.before, options) != (self._terms, self._options):
            self._flag("I7", change.start, found, "the change is one of terms that were not in force")
        if not change.restarts and change.after != change.before:
            self._flag("I7", change.start, found, "the terms change, but no field records it")
        elif disputed := change.disputed:
            what = f"its fields and its terms differ in {', '.join(disputed)}"
            self._flag("I7", change.start, found, what)
        self._check_allowed(change, found)
        self._changes.append(change)
        self._windows_before += self._windows if change.restarts else 0
        self._instance, self._terms = change.instance, change.after
        # What was charged before says nothing of the terms now.
        self._newest = {}
        self._options = change.options(self._options, "new")
        if change.moves_sink:
            self._sink_since = change.start
        if not change.restarts:
            return
        self._since = change.start
        self._sums = self._new_sums(change.after.window)
        self._published = WindowSums(change.after.window)
        self._crossed = tuple(self._changes)
        self._change_windows = [
            ChangeWindows(one, self._crossed, self._charges) for one in self._change_limits()
        ]

    def _check_allowed(self, change: Change, found: FoundRecord) -> None:
        """What no migration can change says in what windows are summed up: across it no sum is right."""
        before, after = change.before, change.after
        if before.units * after.window != after.units * before.window:
            self._flag("I7", change.start, found, "the units of epsilon do not follow the window")
        if change.restarts and self._guarantee.level != "w-event":
            what = f"no migration can change terms or inputs at {self._guarantee.level} level"
            self._flag("I7", change.start, found, what)
        elif change.restarts and self._discovery is not None:
            what = "no migration can change terms or inputs where columns are found in the data"
            self._flag("I7", change.start, found, what)
        for name, one in change.fields.items():
            if name.startswith("mechanism.") and is_refused(name, one.new):
                what = f"no migration can change {name}"
                self._flag("I7", change.start, found, what, f": from {one.old!r} to {one.new!r}")

    def _change_limits(self) -> list[ChangeLimit]:
        """The limits of the windows across the last change of terms, or one before it as well."""
        return [one for one in change_limits(self._crossed, self._first) if one.until > self._since]

    def _check_instance(self, change: Change, found: FoundRecord) -> None:
        if self._instance is not None and change.previous != self._instance:
            self._flag("I7", change.start, found, "the change is of another instance of the stream")

    @property
    def _first(self) -> int:
        """The first timestamp that was charged; that of the last change if there is none yet."""
        timestamps = self._charges.timestamps
        return timestamps[0] if timestamps else self._since

    @property
    def _last(self) -> int:
        timestamps = self._charges.timestamps
        return timestamps[-1] if timestamps else 0

    def _check_key(self, found: FoundRecord) -> None:
        if found.committed and found.key != self.stream.encode():
            self._flag("I7", found.timestamp, found, "its key is not the name of the stream")

    def _check_partition(self, timestamp: int, found: FoundRecord) -> None:
        if found.partition != self._partition:
            what = f"the ledger of this stream is in partition {self._partition}"
            self._flag("I7", timestamp, found, what)

    def _check_order(self, entry: Entry, found: FoundRecord) -> None:
        if self._last and entry.timestamp != self._last + 1:
            what = "the timestamps of the ledger are not consecutive"
            self._flag("I7", entry.timestamp, found, what, f": the last one before it is {self._last}")

    def _check_terms(self, entry: Entry, found: FoundRecord) -> None:
        fields, terms = found.fields or {}, self._terms
        for name in ("mechanism", "window", "units"):
            own = getattr(terms, name)
            value = fields.get(name)
            if type(value) is not type(own) or value != own:
                what = f"{name} is not that of the topology"
                self._flag("I7", entry.timestamp, found, what, f": {value!r:.50}, not {own!r}")
        own = ("gaussian", terms.delta) if terms.delta is not None else (None, None)
        told = (fields.get("noise"), exact_number(fields.get("delta")))
        if told != own or (own[1] is None and "delta" in fields):
            what = "its noise is not that of the topology"
            stated = f"{fields.get('noise')!r:.50} with delta {fields.get('delta')!r:.50}"
            self._flag("I7", entry.timestamp, found, what, f": {stated}, not {own[0]!r} with {own[1]}")
        if discovery_in(fields) != self._discovery or ("discovery" in fields) != bool(self._discovery):
            what = "finding columns costs something other than the topology says"
            told_of = f": {fields.get('discovery')!r:.100}, not {self._discovery}"
            self._flag("I7", entry.timestamp, found, what, told_of)
        if exact_number(text := fields.get("epsilon")) != terms.epsilon:
            what = "epsilon is not that of the topology"
            self._flag("I7", entry.timestamp, found, what, f": {text!r:.50}, not '{terms.epsilon}'")
        if self._instance is None:
            self._instance = entry.instance
        elif entry.instance != self._instance:
            what = "the entry is of another instance of the stream than the first one: its budget began anew"
            self._flag("I7", entry.timestamp, found, what)

    def _check_spends(self, entry: Entry, found: FoundRecord) -> None:
        if entry.fresh and not entry.publish:
            self._flag("I7", entry.timestamp, found, "a fresh release was not charged")
        if entry.publish and not entry.fresh and not entry.forfeited:
            self._flag("I7", entry.timestamp, found, "a repeated release was charged as a fresh one")
        self._forfeited += entry.forfeited
        self._looks += PAN in self._options and entry.fresh and not entry.test
        whole = bool(entry.test) == bool(entry.publish)
        if entry.forfeited and not (whole and not entry.fresh and PAN in self._options):
            what = "forfeited is for repeated releases of pan-private streams"
            self._flag("I7", entry.timestamp, found, what)
        kind = known(self._terms.mechanism, self._options)
        if kind and not self._can_spend(kind, Spend(entry.test, entry.publish)):
            what = f"{kind.kind} cannot have spent this"
            self._flag("I7", entry.timestamp, found, what, f": {entry.test} and {entry.publish} units")
        if entry.timestamp < self._last:
            self._recount = True
            return  # out of order, which is a violation already; its windows are added up in the end
        most = self._most_published(kind)
        if most is not None and self._published.add(entry.timestamp, entry.publish) > most:
            what = f"the publications of the window that ends here cost more than {most} units"
            self._flag("I7", entry.timestamp, found, what)
        spend = entry.test + entry.publish
        spent = self._sums.add(entry.timestamp, spend)
        if spent > self._terms.units:
            what = "the window or horizon that ends here spent more than epsilon"
            self._flag("I7", entry.timestamp, found, what, f": {spent} of {self._terms.units} units")
        self._change_windows = [one for one in self._change_windows if entry.timestamp < one.until]
        for one in self._change_windows:
            if not one.add(entry.timestamp, spend, self._terms):
                what = "a window across a change of terms spent more than the larger epsilon"
                self._flag("I7", entry.timestamp, found, what)
        exhausted = self._sums.exhausted(entry.timestamp)
        if exhausted and (entry.test or entry.publish):
            self._flag("I7", entry.timestamp, found, "it spent after its horizon had passed")
        if exhausted != entry.exhausted:
            what = "whether it is exhausted does not agree with the horizon"
            self._flag("I7", entry.timestamp, found, what)
        if spent != entry.window_spent:
            what = "window_spent is not the sum of the window's or horizon's spends"
            self._flag("I7", entry.timestamp, found, what, f": {entry.window_spent}, not {spent}")

    def _may_predict(self, entry: Entry) -> bool:
        """Whether the entry's release may be predicted; of a kind that is unknown here it may."""
        kind = known(self._terms.mechanism, self._options)
        return (kind is None or kind.predicts) and not entry.exhausted

    def _can_spend(self, kind: type[Mechanism], charge: Spend) -> bool:
        terms = self._terms
        try:
            return kind.can_spend(charge, terms.window, terms.units, self._columns, self._options)
        except ValueError:
            return False

    def _most_published(self, kind: type[Mechanism] | None) -> int | None:
        terms = self._terms
        try:
            if kind is not None:
                return kind.most_published(terms.window, terms.units, self._columns, self._options)
        except ValueError:
            pass
        return None

    def _charged_record(self, found: FoundRecord, timestamp: int, known: int) -> None:
        if self._charges.statement(known) != found.statement:
            what = "the record states a different charge than its ledger entry"
            self._flag("I7", timestamp, found, what)
        self._check_times(timestamp, found)
        self._check_columns(found)
        self._first_records.setdefault(found.partition, timestamp)
        before = self._charges.seen[known]
        self._charges.see(known, SeenInSink.PUBLISHED if found.committed else SeenInSink.ABORTED, found.shown)
        if not found.committed:
            self._aborted += 1
        elif before == SeenInSink.PUBLISHED:
            self._repeated += 1
        else:
            self._order.add(timestamp, found)

    def _check_times(self, timestamp: int, found: FoundRecord) -> None:
        fields = found.fields or {}
        told = (fields.get("start"), fields.get("end"))
        try:
            bounds = start_of(self._timeline, timestamp), start_of(self._timeline, timestamp + 1)
            right: tuple[str, ...] = (format_rfc3339(bounds[0]), format_rfc3339(bounds[1]))
        except OverflowError:  # beyond the year 9999
            right = ()
        if told == right:
            self._timelines.add(self._timeline)
            return
        what = "start and end are not those of the timestamp in the topology"
        self._flag("I7", timestamp, found, what, f", {' and '.join(right)}" if right else "")
        if len(self._timelines) < 2:
            self._timelines.add(shown_timeline(timestamp, *told, self._timeline))

    def _check_columns(self, found: FoundRecord) -> None:
        """Its digest says that the record is what was decided, so what differs is the file."""
        if self._listed and not self._other_columns:
            fields = found.fields or {}
            self._other_columns = other_columns(fields["counts"], fields.get("columns_digest"), self._listed)

    def _aborted_entry(self, timestamp: int, digest: bytes, found: FoundRecord) -> None:
        known = self._charges.find(timestamp)
        if known is None:
            self._undecided += timestamp > self._last
            self._others.setdefault(timestamp, set()).add(digest)
            self._check_one_draw(timestamp, found)
        elif self._charges.digest(known) == digest:
            self._aborted += 1
        else:
            self._flag("I1", timestamp, found, "it charged a different release than the committed entry")

    def _check_one_draw(self, timestamp: int, found: FoundRecord) -> None:
        others = self._others.get(timestamp)
        if others is None or timestamp in self._two_draws:
            return
        known = self._charges.find(timestamp)
        shown = len(others) + (known is not None and self._charges.seen[known] != SeenInSink.NOT)
        if shown > 1:
            self._two_draws.add(timestamp)
            self._flag("I1", timestamp, found, _TWO_DRAWS)

    def _matched_from(self, kept: Kept) -> int | None:
        timestamps = self._charges.timestamps
        if not timestamps:
            return None
        if kept == "nothing" or self._last < self._sink_since:
            return None
        if kept == "everything":
            return max(timestamps[0], self._sink_since)
        if kept == "last":
            return timestamps[-1]
        return min(self._first_records.values(), default=None)

    def _check_published(self, index: int) -> None:
        if self._charges.seen[index] != SeenInSink.PUBLISHED:
            what = "the release was charged, but its record is not in the sink"
            self._flag("I7", self._charges.timestamps[index], "the sink", what)


def stranger(found: FoundRecord) -> Finding | None:
    """What is wrong with a ledger record of no known stream; None if it is of another stream."""
    known = Entry.read(found) or Change.read(found.fields) or Span.read(found.fields)
    if not found.committed or known is not None:
        return None
    what = "this is not a ledger entry, nor of a stream of the topology"
    return Finding("I7", f"{found.stream!r:.50}", None, str(found), what)


def _noise(terms: Terms) -> dict[str, str]:
    return {} if terms.delta is None else {"noise": "gaussian", "delta": str(terms.delta)}


def _words(terms: Terms, options: Mapping[str, object]) -> str:
    told = "".join(f", {name} {value}" for name, value in sorted(options.items()))
    return f"{terms.mechanism} with epsilon {terms.epsilon}, window {terms.window}{told}"

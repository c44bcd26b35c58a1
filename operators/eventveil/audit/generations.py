"""The generations of a stream: each reset begins one, with a ledger and a sink of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eventveil.audit.control import Asks
from eventveil.audit.findings import DiscoveryCost, Kept, Report
from eventveil.audit.records import FoundRecord
from eventveil.audit.stream import StreamAudit
from eventveil.formats.change import Change, Options, Terms
from eventveil.mechanisms.base import Mechanism
from eventveil.model.topology import Discover, MechanismSettings, Timeline


class GenerationsAudit:
    """The audits of a stream, one per generation; used as ``StreamAudit`` is.

    ``changes`` are all that the ledger holds, in order, of this stream: they say which terms came first.
    Records of the sink belong to the newest generation.
    """

    def __init__(
        self,
        stream: str,
        timeline: Timeline,
        mechanism: Mechanism,
        columns: int,
        settings: MechanismSettings,
        partition: int,
        changes: Sequence[Change] = (),
        asks: Asks | None = None,
        discovery: DiscoveryCost | None = None,
        found: tuple[str, Discover] | None = None,
        names: tuple[str, ...] = (),
    ) -> None:
        guarantee = mechanism.guarantee
        now = Terms(settings.kind, guarantee.epsilon, guarantee.window, mechanism.units, settings.delta)
        begins = [0, *(index + 1 for index, change in enumerate(changes) if change.kind == "reset")]
        # No record of a change tells of options that are not remembered.
        texts: Options = {
            name: str(value) for name, value in settings.options.items() if name not in mechanism.unremembered
        }
        #: Those before each change, then those of now.
        told = [texts]
        for change in reversed(changes):
            told.insert(0, change.options(told[0], "old"))
        changes = [_under(one, options) for one, options in zip(changes, told, strict=False)]
        self._audits: list[StreamAudit] = []
        for begin, after in zip(begins, [*begins[1:], len(changes) + 1], strict=True):
            own = changes[begin : after - 1]
            last = changes[after - 1].before if after <= len(changes) else now
            first = own[0].before if own else last
            bounds = told[begin], told[after - 1]
            self._audits.append(
                StreamAudit(
                    stream,
                    timeline,
                    first,
                    last,
                    partition,
                    guarantee,
                    columns,
                    bounds,
                    asks,
                    discovery,
                    found,
                    names,
                )
            )
        self._at = 0

    def ledger_begins(self, topic: str, partition: int, offset: int) -> None:
        """See ``StreamAudit``."""
        self._audits[0].ledger_begins(topic, partition, offset)

    def entry(self, found: FoundRecord) -> None:
        """See ``StreamAudit``."""
        change = Change.read(found.fields) if found.committed else None
        if change is None or change.kind != "reset":
            self._audits[self._at].entry(found)
        elif self._at + 1 < len(self._audits):
            self._audits[self._at].ends(change, found)
            self._at += 1
            self._audits[self._at].begins(change, found)

    def record(self, found: FoundRecord, *, newer: bool = False) -> None:
        """See ``StreamAudit``."""
        self._audits[-1].record(found, newer=newer)

    def asked(self, found: FoundRecord, *, newer: bool = False) -> None:
        """Check a record of the control topic that has the name of this stream for its key."""
        self._audits[-1].asked(found, newer=newer)

    def reports(self, kept: Kept) -> list[Report]:
        """The reports of all generations, the newest last; ``kept`` says what its sink still has."""
        reports = [*(audit.report("nothing") for audit in self._audits[:-1]), self._audits[-1].report(kept)]
        if len(reports) == 1:
            return reports
        return [
            replace(report, stream=f"{report.stream}, generation {number}")
            for number, report in enumerate(reports, 1)
        ]


def _under(change: Change, options: Options) -> Change:
    """With the deltas of its terms; as it is if it cannot have them, which the audit of the stream finds."""
    try:
        return change.under(options)
    except ValueError:
        return change

"""What the columns of releases show, where columns are found in the data.

That a column was drawn as it should have been cannot be seen. What can: the first column is that of all
others; all releases of a block of timestamps have the same columns; those that a block shares with the one
before it come first, in their order; there are no more than may be found, and each is a text that could have
been counted. A block may lack columns of the one before, whatever the file says now: whether columns were
forgotten then is a setting that may change at any time. Whether they were quiet for long enough is not looked
at.
"""

from __future__ import annotations

from eventveil.audit.findings import Violations
from eventveil.audit.records import FoundRecord
from eventveil.decoding.rules import Names
from eventveil.model.topology import Discover

_OTHERS = "its columns are not those of the other releases, in their order"


class ColumnsAudit:
    """The columns of the releases of a stream, which may come in any order.

    ``first`` is the column of all others, and ``window`` timestamps are a block.
    """

    def __init__(self, first: str, how: Discover, window: int, flag: Violations) -> None:
        self._first, self._how, self._window, self._flag = first, how, window, flag
        #: By block: the columns of its releases, and the timestamp that has shown them. Equal ones are one
        #: object.
        self._blocks: dict[int, tuple[tuple[str, ...], int]] = {}
        self._same: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._texts: set[str] = set()

    def record(self, timestamp: int, found: FoundRecord) -> None:
        """Check a committed release."""
        counts = (found.fields or {}).get("counts")
        columns = tuple(counts) if isinstance(counts, dict) else ()
        if columns[:1] != (self._first,):
            what = "the first column is not that of all others"
            self._flag("I7", timestamp, found, what, f": {columns[:1]!r:.80}, not {self._first!r:.80}")
            return
        most = 1 + self._how.most
        if len(columns) > most:
            what = "it has more columns than may be found"
            self._flag("I7", timestamp, found, what, f": {columns[most]!r:.80} is beyond {self._how.most}")
        new = tuple(one for one in columns[1:] if one not in self._texts)
        self._check_texts(new, timestamp, found)
        self._texts.update(new)
        columns = self._same.setdefault(columns, columns)
        before, shown = self._blocks.setdefault((timestamp - 1) // self._window, (columns, timestamp))
        if before != columns:
            column = sorted({*before} ^ {*columns} or {*columns[1:]})[0]
            what = "columns changed where no block of timestamps begins"
            self._flag("I7", timestamp, found, what, f": {column!r:.80}, unlike at timestamp {shown}")

    def finish(self) -> None:
        """Check what only all releases together can show."""
        for block, (columns, timestamp) in sorted(self._blocks.items()):
            before, _ = self._blocks.get(block - 1, (columns[:1], 0))
            now = {*columns}
            stayed = tuple(one for one in before if one in now)
            if columns[: len(stayed)] != stayed:
                wrong = next(one for one, kept in zip(columns, stayed, strict=False) if one != kept)
                self._flag("I7", timestamp, "the sink", _OTHERS, f": {wrong!r:.80} is not in its place")

    def _check_texts(self, columns: tuple[str, ...], timestamp: int, found: FoundRecord) -> None:
        names = Names(self._how.longest)
        for one in columns:
            if names.number(one) is None:
                what = "a column is found that no event can have named"
                self._flag("I7", timestamp, found, what, f": {one!r:.80}")

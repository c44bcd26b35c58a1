"""What the columns of releases show, where columns are found in the data.

That a column was drawn as it should have been cannot be seen. What can: the first column is that of all
others; a release has the columns of the one before it, in their order, and further ones only where a block of
timestamps begins; there are no more than may be found, and each is a text that could have been counted.
"""

from __future__ import annotations

from eventveil.audit.findings import Violations
from eventveil.audit.records import Found
from eventveil.decoding.rules import Names
from eventveil.model.topology import Discover

_OTHERS = "its columns are not those of the other releases, in their order"


class ColumnsAudit:
    """The columns of the releases of a stream, which may come in any order.

    ``first`` is the column of all others, and ``window`` timestamps are a block.
    """

    def __init__(self, first: str, how: Discover, window: int, flag: Violations) -> None:
        self._first, self._how, self._window, self._flag = first, how, window, flag
        #: Those of the release that has most; a right one has the first ones of these, or more.
        self._known: tuple[str, ...] = (first,)
        #: By block: how many columns its releases have, and the timestamp that has shown it.
        self._blocks: dict[int, tuple[int, int]] = {}

    def record(self, timestamp: int, found: Found) -> None:
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
        pairs = zip(columns, self._known, strict=False)
        wrong = next((one for one, known in pairs if one != known), None)
        if wrong is not None:
            self._flag("I7", timestamp, found, _OTHERS, f": {wrong!r:.80} is new there")
            return
        self._check_texts(columns[len(self._known) :], timestamp, found)
        self._known = max(columns, self._known, key=len)
        before, shown = self._blocks.setdefault((timestamp - 1) // self._window, (len(columns), timestamp))
        if before != len(columns):
            column = self._known[min(before, len(columns))]
            what = "columns changed where no block of timestamps begins"
            self._flag("I7", timestamp, found, what, f": {column!r:.80}, unlike at timestamp {shown}")

    def finish(self) -> None:
        """Check what only all releases together can show."""
        most = 0
        for _, (columns, timestamp) in sorted(self._blocks.items()):
            if columns < most:
                lost = self._known[columns]
                what = "a column that was released before is gone"
                self._flag("I7", timestamp, "the sink", what, f": {lost!r:.80}")
            most = max(most, columns)

    def _check_texts(self, columns: tuple[str, ...], timestamp: int, found: Found) -> None:
        names = Names(self._how.longest)
        for one in columns:
            if names.number(one) is None:
                what = "a column is found that no event can have named"
                self._flag("I7", timestamp, found, what, f": {one!r:.80}")

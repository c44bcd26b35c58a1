"""The budget of one stream: what was spent, in integers, and the refusal of anything above it.

Epsilon is ``units`` equal parts. The ledger is a privacy filter for pure epsilon: budgets may be chosen from
earlier outputs, as long as every spend is asked for before its noise is drawn. A mechanism that does so meets
Formula (1) of Theorem 3 in G. Kellaris, S. Papadopoulos, X. Xiao and D. Papadias, "Differentially Private
Event Sequences over Infinite Streams" (PVLDB 2014): the sum over any ``window`` consecutive timestamps is at
most epsilon.

Only the window that ends at the open timestamp is kept. That is enough: a spend is recorded at the open
timestamp and nowhere else, so each window was checked in full when its last spend was asked for.

At user level epsilon covers a horizon: ``window`` timestamps from the first one on, whatever a user does in
them, and not each ``window`` of them anew. There the ledger adds up from the beginning of the horizon.

A ledger that takes over from one with other terms begins empty, and *bridges* limit the windows that hold
timestamps of both (``eventveil.lifecycle.migration`` has the proof).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from eventveil.model.errors import BudgetExceeded


class Spend(NamedTuple):
    """What one timestamp has spent, in units: on the dissimilarity test (M1) and on publication (M2)."""

    test: int
    publish: int


@dataclass(frozen=True, slots=True)
class Bridge:
    """A limit on the windows that straddle a change of terms: no spend may lift one above ``units``.

    ``window`` is their width. ``past`` are the units spent at the last ``window`` - 1 timestamps before the
    ledger began, the oldest first; fewer if the stream is younger. The bridge holds for the first ``left``
    timestamps of the ledger, those which share a window with a timestamp from before the change.
    """

    window: int
    units: int
    past: Sequence[int]
    left: int


@dataclass(slots=True)
class _Run:
    """``length`` consecutive timestamps with the same spends."""

    length: int
    test: int
    publish: int


class Ledger(ABC):
    """Spends of ``window`` timestamps, never more than ``units`` together."""

    def __init__(self, window: int, units: int) -> None:
        if window < 1 or units < 1:
            raise ValueError(f"window and units should be at least 1, not {window} and {units}")
        self.window, self.units = window, units
        self._test = self._publish = 0

    @property
    def window_spent(self) -> int:
        """Units spent in the window, or since the beginning of the horizon, that ends here."""
        return self._test + self._publish

    @property
    def window_published(self) -> int:
        """The part of ``window_spent`` that went into publications."""
        return self._publish

    @property
    def remaining(self) -> int:
        """Units that the open timestamp may still spend."""
        return self.units - self.window_spent

    @property
    @abstractmethod
    def current(self) -> Spend:
        """What the open timestamp has spent; nothing before the first one is opened."""

    @abstractmethod
    def open_timestamp(self) -> None:
        """Go to the next timestamp."""

    @abstractmethod
    def fits(self, timestamp: int) -> bool:
        """Whether this can be the ledger of a stream whose open timestamp is its ``timestamp``-th."""

    @abstractmethod
    def _record(self, test: int, publish: int) -> None:
        """Add to what the open timestamp has spent."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """The whole state as JSON-able data."""

    @abstractmethod
    def restore(self, state: object) -> None:
        """Continue from ``snapshot()``.

        Raises ValueError, and changes nothing, if this is not the state of a ledger with the same window and
        units that kept to its budget.
        """

    def charge_test(self, units: int) -> None:
        """Spend on the dissimilarity test of the open timestamp.

        Raises BudgetExceeded, and records nothing, if the window would hold more than ``units``; ValueError
        unless ``units`` is a positive integer and a timestamp is open.
        """
        self._ask(units)
        self._record(units, 0)

    def charge_publish(self, units: int) -> None:
        """Spend on the publication of the open timestamp; raises as ``charge_test`` does."""
        self._ask(units)
        self._record(0, units)

    def bridge(self, bridge: Bridge) -> None:
        """Keep to ``bridge`` too. ValueError once a timestamp has been opened, or if it makes no sense."""
        raise ValueError("only a ledger of windows takes over from another")

    def bridges_allow(self, units: int) -> bool:
        """Whether no bridge stands against such a spend; a function of earlier outputs alone.

        It does not ask for the ledger's own window: a mechanism that overspends that is a mistake, and should
        be refused.
        """
        return True

    def _ask(self, units: int) -> None:
        if type(units) is not int or units < 1:
            raise ValueError(f"a spend should be a positive number of units, not {units!r}")
        if self.fits(0):
            raise ValueError("a spend needs an open timestamp")
        if units > self.remaining:
            raise BudgetExceeded(
                f"{units} units were asked for, {self.remaining} of {self.units} remain in this window"
            )

    def _check_terms(self, state: object, fields: set[str]) -> dict[str, Any]:
        if not isinstance(state, dict) or set(state) != fields:
            raise ValueError(f"the state of a ledger should be an object with {', '.join(sorted(fields))}")
        for name, own in (("window", self.window), ("units", self.units)):
            if type(state[name]) is not int or state[name] != own:
                raise ValueError(f"the ledger's {name} should be {own}, not {state[name]!r}")
        return state


class BudgetLedger(Ledger):
    """Spends of the last ``window`` timestamps.

    Equal neighbours are kept as one run, so memory and snapshots grow with the number of changes and not
    with the window. Every method takes constant time, except snapshot and restore.
    """

    def __init__(self, window: int, units: int) -> None:
        super().__init__(window, units)
        self._runs: deque[_Run] = deque()
        self._timestamps = 0
        self._bridges: list[_Span] = []

    def bridge(self, bridge: Bridge) -> None:
        """See ``Ledger.bridge``."""
        if self._runs:
            raise ValueError("a bridge belongs in front of the first timestamp")
        if not 0 <= len(bridge.past) < bridge.window or not 0 < bridge.left < bridge.window:
            raise ValueError("a bridge should be wider than its past, and than what is left of it")
        ledger = BudgetLedger(bridge.window, bridge.units)
        runs = [[length, 0, units] for units, length in _lengths(bridge.past)]
        ledger._take({"window": bridge.window, "units": bridge.units, "runs": runs}, overdrawn=True)
        self._bridges.append(_Span(bridge.left, ledger))

    @property
    def remaining(self) -> int:
        """Units that the open timestamp may still spend; below 0 while a bridge is overdrawn."""
        own = super().remaining
        return min((own, *(span.ledger.remaining for span in self._bridges)))

    def bridges_allow(self, units: int) -> bool:
        """See ``Ledger.bridges_allow``."""
        return all(units <= span.ledger.remaining for span in self._bridges)

    @property
    def current(self) -> Spend:
        """See ``Ledger.current``."""
        return Spend(self._runs[-1].test, self._runs[-1].publish) if self._runs else Spend(0, 0)

    def fits(self, timestamp: int) -> bool:
        """See ``Ledger.fits``."""
        return self._timestamps == min(timestamp, self.window)

    def open_timestamp(self) -> None:
        """Go to the next timestamp; the spends of the one that leaves the window come back."""
        self._join_last()
        if self._timestamps == self.window:
            self._forget_oldest()
        self._runs.append(_Run(1, 0, 0))
        self._timestamps += 1
        self._bridges = [_Span(span.left - 1, span.ledger) for span in self._bridges if span.left > 0]
        for span in self._bridges:
            span.ledger.open_timestamp()

    def snapshot(self) -> dict[str, Any]:
        """The whole state as JSON-able data: runs of [length, test, publish], the open timestamp last.

        The bridges that still stand are there too, if there are any.
        """
        runs: list[list[int]] = []
        for run in self._runs:
            if runs and runs[-1][1:] == [run.test, run.publish]:
                runs[-1][0] += run.length
            else:
                runs.append([run.length, run.test, run.publish])
        bridges = [{"left": span.left, **span.ledger.snapshot()} for span in self._bridges]
        state = {"window": self.window, "units": self.units, "runs": runs}
        return {**state, "bridges": bridges} if bridges else state

    def restore(self, state: object) -> None:
        """See ``Ledger.restore``."""
        self._take(state, overdrawn=False)

    def _take(self, state: object, *, overdrawn: bool) -> None:
        runs = self._validated(state, overdrawn)
        self._bridges = self._restored_bridges(state)
        self._timestamps = sum(run.length for run in runs)
        self._test = sum(run.length * run.test for run in runs)
        self._publish = sum(run.length * run.publish for run in runs)
        if runs and runs[-1].length > 1:
            last = runs[-1]
            last.length -= 1
            runs.append(_Run(1, last.test, last.publish))
        self._runs = deque(runs)

    def _record(self, test: int, publish: int) -> None:
        self._runs[-1].test += test
        self._runs[-1].publish += publish
        self._test += test
        self._publish += publish
        for span in self._bridges:
            span.ledger._record(test, publish)

    def _join_last(self) -> None:
        """Make one run of the open timestamp and the run before it, if their spends are equal."""
        if len(self._runs) < 2:
            return
        last, before = self._runs[-1], self._runs[-2]
        if (last.test, last.publish) == (before.test, before.publish):
            before.length += 1
            self._runs.pop()

    def _forget_oldest(self) -> None:
        oldest = self._runs[0]
        self._test -= oldest.test
        self._publish -= oldest.publish
        self._timestamps -= 1
        oldest.length -= 1
        if oldest.length == 0:
            self._runs.popleft()

    def _validated(self, state: object, overdrawn: bool) -> list[_Run]:
        bridges = {"bridges"} if isinstance(state, dict) and "bridges" in state else set()
        state = self._check_terms(state, {"window", "units", "runs"} | bridges)
        if not isinstance(state["runs"], list):
            raise ValueError("the runs of a ledger should be an array")
        runs = [_run(item) for item in state["runs"]]
        if sum(run.length for run in runs) > self.window:
            raise ValueError(f"the ledger holds more than {self.window} timestamps")
        if not overdrawn and sum(run.length * (run.test + run.publish) for run in runs) > self.units:
            raise ValueError(f"the ledger has spent more than {self.units} units in one window")
        return runs

    def _restored_bridges(self, state: Any) -> list[_Span]:
        bridges = state.get("bridges", [])
        if not isinstance(bridges, list):
            raise ValueError("the bridges of a ledger should be an array")
        return [_span(item) for item in bridges]


class HorizonLedger(Ledger):
    """Spends of a horizon of ``window`` timestamps.

    Once it has passed, a new horizon with the whole budget begins if it ``renews``; else nothing can be spent
    any more, and ``window_spent`` stays what the horizon has spent.
    """

    def __init__(self, window: int, units: int, *, renews: bool) -> None:
        super().__init__(window, units)
        self._renews = renews
        self._opened = 0
        self._current = Spend(0, 0)

    @property
    def place(self) -> int:
        """The open timestamp's number in its horizon, from 1 on; 0 before the first one."""
        return (self._opened - 1) % self.window + 1 if self._opened else 0

    @property
    def exhausted(self) -> bool:
        """Whether the only horizon has passed."""
        return not self._renews and self._opened > self.window

    @property
    def remaining(self) -> int:
        """See ``Ledger.remaining``."""
        return 0 if self.exhausted else super().remaining

    @property
    def current(self) -> Spend:
        """See ``Ledger.current``."""
        return self._current

    def fits(self, timestamp: int) -> bool:
        """See ``Ledger.fits``."""
        return self._opened == timestamp

    def open_timestamp(self) -> None:
        """See ``Ledger.open_timestamp``; a new horizon has its whole budget."""
        self._opened += 1
        self._current = Spend(0, 0)
        if self._renews and self.place == 1:
            self._test = self._publish = 0

    def _record(self, test: int, publish: int) -> None:
        self._current = Spend(self._current.test + test, self._current.publish + publish)
        self._test += test
        self._publish += publish

    def snapshot(self) -> dict[str, Any]:
        """See ``Ledger.snapshot``: ``opened`` timestamps, the spends of the last one and of the horizon."""
        return {
            "window": self.window,
            "units": self.units,
            "opened": self._opened,
            "current": list(self._current),
            "spent": [self._test, self._publish],
        }

    def restore(self, state: object) -> None:
        """See ``Ledger.restore``."""
        fields = self._check_terms(state, {"window", "units", "opened", "current", "spent"})
        opened = fields["opened"]
        if type(opened) is not int or opened < 0:
            raise ValueError(f"the ledger should have opened a number of timestamps, not {opened!r}")
        current, spent = _spend(fields["current"]), _spend(fields["spent"])
        if sum(spent) > self.units:
            raise ValueError(f"the ledger has spent more than {self.units} units in one horizon")
        if current.test > spent.test or current.publish > spent.publish or (not opened and any(spent)):
            raise ValueError("the ledger's timestamp should not have spent more than its horizon")
        self._opened, self._current = opened, current
        self._test, self._publish = spent


def _spend(item: object) -> Spend:
    if not isinstance(item, list) or len(item) != 2 or any(type(n) is not int or n < 0 for n in item):
        raise ValueError(f"a spend of a ledger should be two numbers, not negative, not {item!r}")
    return Spend(*item)


@dataclass(slots=True)
class _Span:
    """A bridge that stands for ``left`` more timestamps: a ledger that may begin overdrawn."""

    left: int
    ledger: BudgetLedger


def _span(item: object) -> _Span:
    if not isinstance(item, dict) or any(
        type(item.get(name)) is not int for name in ("left", "window", "units")
    ):
        raise ValueError("a bridge should be an object with the integers left, window and units")
    left, state = item["left"], {name: value for name, value in item.items() if name != "left"}
    ledger = BudgetLedger(state["window"], state["units"])
    if not 0 <= left < ledger.window:
        raise ValueError(f"what is left of a bridge should be in 0..{ledger.window - 1}, not {left}")
    ledger._take(state, overdrawn=True)
    return _Span(left, ledger)


def _lengths(values: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Equal neighbours as (value, how many)."""
    return ((value, sum(1 for _ in group)) for value, group in groupby(values))


def _run(item: object) -> _Run:
    if not isinstance(item, list) or len(item) != 3 or any(type(number) is not int for number in item):
        raise ValueError(f"a run of a ledger should be three integers, not {item!r}")
    length, test, publish = item
    if length < 1 or test < 0 or publish < 0:
        raise ValueError(f"a run of a ledger should be [at least 1, not negative, not negative], not {item}")
    return _Run(length, test, publish)

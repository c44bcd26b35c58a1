"""Sample: one timestamp per window is published with the whole budget, the others repeat it.

**Guarantee.** w-event epsilon-differential privacy; neighbours and assumptions as in
``eventveil.mechanisms.w_event``.

**Proof.** Kellaris et al. (PVLDB 2014), Section 3, benchmark Sample: timestamps 1, window + 1, 2 window + 1
and so on spend N of N units, discrete Laplace noise of scale sensitivity / epsilon, the others nothing; any
window of ``window`` timestamps holds exactly one of the former. Changed: the noise is discrete, the
sensitivity may exceed 1; and with the option ``periods``, the lengths of a day and a week, the interval may
be longer than the window, by half at most, so that publications fall on all of their phases
(``eventveil.mechanisms.forecasting.pace``). Otherwise a window of a day would release midnight only. A
window then holds at most one publication.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

from eventveil.mechanisms import gaussian
from eventveil.mechanisms.base import Counts, Options
from eventveil.mechanisms.forecasting import pace
from eventveil.mechanisms.forecasting.harmonics import periods_of
from eventveil.mechanisms.publishing import TIMESTAMP_LIMIT, integer_between
from eventveil.mechanisms.w_event import WEventMechanism
from eventveil.model.topology import Option
from eventveil.privacy.ledger import Ledger, Spend


class Sample(WEventMechanism):
    """Publishes c + DLap(k / epsilon) when (i - 1) mod w = 0, else repeats.

    Those are the timestamps at which the whole budget is there. After a change of terms it can come later,
    and in steps of a longer interval with ``periods``.
    """

    kind: ClassVar[str] = "sample"
    summary: ClassVar[str] = "publishes the first timestamp of every window with the whole budget"
    options: ClassVar[frozenset[str]] = frozenset({"periods"}) | gaussian.OPTIONS
    unremembered: ClassVar[frozenset[str]] = frozenset({"periods"})
    added: ClassVar[frozenset[str]] = WEventMechanism.added | {"due"}
    columns_apart: ClassVar[bool] = True

    def _configure(self, options: Mapping[str, Option]) -> None:
        self._interval = pace.unaliased(self._window, periods_of(options))
        self._due = 0  # the timestamp from which on a publication is due

    @classmethod
    def can_spend(cls, spend: Spend, window: int, units: int, columns: int, options: Options) -> bool:
        """See ``Mechanism.can_spend``: all or nothing."""
        return spend in (Spend(0, units), Spend(0, 0))

    def _allot(self, counts: Counts) -> int:
        paid = self._ledger.window_spent == 0 and self._ledger.bridges_allow(self.units)
        if self._timestamp < self._due or not paid:
            return 0
        self._due = self._timestamp + self._interval
        return self.units

    @property
    def notes(self) -> tuple[str, ...]:
        """See ``Mechanism.notes``."""
        if self._interval == self._window:
            return ()
        return (
            f"Publishes every {self._interval} timestamps instead of {self._window}, so as not to publish"
            " at the same time of the day or week each time (option periods).",
        )

    def _extra_state(self) -> dict[str, Any]:
        return {"due": self._due}

    def _restore_extra(self, values: Mapping[str, Any], timestamp: int, ledger: Ledger) -> None:
        self._due = integer_between(values.get("due", 0), 0, TIMESTAMP_LIMIT, "due")

    def _scales(self) -> tuple[Fraction, Fraction]:
        scale = self._scale(self.units)
        return scale, scale

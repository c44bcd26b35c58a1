"""What the mechanisms with a w-event guarantee share: epsilon for any ``window`` timestamps together.

**Guarantee.** w-event epsilon-differential privacy (G. Kellaris, S. Papadopoulos, X. Xiao, D. Papadias,
"Differentially Private Event Sequences over Infinite Streams", PVLDB 2014, Definition 4). *Neighbours*: two
streams that differ in one user's events at timestamps which fit in ``window`` consecutive ones; at each of
these, all of the user's events are present in one stream and none in the other. *Assumptions*: those of
``eventveil.mechanisms.publishing``.

**Proof.** Theorem 3 of that paper: let the i-th timestamp be eps_i-differentially private given all earlier
outputs; then it suffices that the eps_i of any ``window`` consecutive timestamps sum to epsilon at most. The
sum is the ledger's doing; that a timestamp has the privacy it was charged for is shown in
``eventveil.mechanisms.publishing`` for what it publishes, by each kind for its tests.

A mechanism that inherits from one with other settings begins with the other's last release, which is public
by then, instead of zeros. Its ledger may refuse what windows across the change cannot pay: then it repeats
without a test. What remains is a function of earlier outputs, so that this decision costs nothing.

Changed from the paper: discrete instead of continuous noise, budgets in integer units that round down,
sensitivity k instead of 1, and releases are clamped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import orjson

from eventveil.mechanisms.base import Counts
from eventveil.mechanisms.movement import Movement
from eventveil.mechanisms.publishing import PublishingMechanism
from eventveil.model.topology import Level
from eventveil.privacy.ledger import Bridge


class WEventMechanism(PublishingMechanism):
    """A mechanism whose epsilon covers any ``window`` consecutive timestamps."""

    level: ClassVar[Level] = "w-event"

    def inherit(self, predecessor: bytes, bridges: Iterable[Bridge]) -> None:
        """See ``Mechanism.inherit``."""
        if self._timestamp:
            raise ValueError("only a mechanism at its first timestamp can inherit")
        try:
            state = orjson.loads(predecessor)
            last = self._restored_release(state["last"])
            movement = self._inherited_error(state, last)
        except (KeyError, TypeError) as error:
            raise ValueError(f"no last release can be read: {error!r}") from None
        for bridge in bridges:
            self._ledger.bridge(bridge)
        self._last, self._movement = last, movement

    def _inherited_error(self, state: Mapping[str, Any], last: Counts) -> Movement:
        if "error" not in state:
            return self._movement.empty()
        return self._movement.inherited(state["error"], state["timestamp"], last)

"""What the kinds for value streams share: hold back, estimate a threshold, release chunk after chunk.

**Guarantee.** Event-level differential privacy: all readings together change their probability by at most
what the kind declares (``ValueGuarantee``) when one value is replaced in its place. *Not* protected: the
existence, order, number and timing of values. A person with k values is protected by k epsilon.
*Assumptions*: settings are public, values lie in 0..maximum (clipped on both sides), the noise is independent
of everything else and nobody else knows it.

**Source.** T. Wang et al., "Continuous Release of Data Streams under both Centralized and Local Differential
Privacy" (CCS 2021), Section 3 and Algorithm 1.

**Proof.** The positions of the stream fall into spans: the ``held`` values that a threshold is estimated
from, and the ``chunk`` values of a hierarchy. Where spans begin is public or decided by earlier releases
alone (``drift``), and each position belongs to one span: the ledger refuses a second charge. Given all
earlier outputs, what a span releases is private with epsilon (``threshold``, ``pak``, ``tree``) and depends
on the values of no other span. So one value costs what its own span costs (parallel composition; with Wang
et al., CCS 2021, Sections 3.4 and 3.6). Readings are functions of the thresholds and noisy sums (post-
processing):

* inside a node of ``b^s`` values, reading j is the difference of floor(j g / b^s) for the guess g;
* the last reading of a node is the noisy sum minus the readings before it, so the sum of a node is kept.

**Changed.** Algorithm 1, line 9, subtracts u (b^s - 1) instead of (u / b^s)(b^s - 1). A last node that the
chunk cuts short is only predicted. ``drift`` is our rule for a suggestion of the paper's Section 7.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from math import isqrt
from typing import Any, ClassVar, Literal

import numpy as np
import orjson
from numpy.typing import NDArray

from eventveil.privacy.noise import NoiseSource
from eventveil.values.ledger import Charge, PositionLedger
from eventveil.values.smoothers import SmootherKind, smoother
from eventveil.values.tree import LEAF_LIMIT, ConsistentTree, PrefixTree, TreeNoise, height

VALUE_LIMIT = 2**31
HELD_LIMIT = 2**16
SUM_LIMIT = 2**40
"""Noisy sums are clamped to +-SUM_LIMIT; true sums of a node may not exceed it."""

SCALE_LIMIT = 2**48
"""So that noise beyond the clamp of ``tree`` is as unlikely as e^-8192."""

POSITION_LIMIT = 2**62


@dataclass(frozen=True, slots=True)
class PublicSettings:
    """The public settings that all kinds have.

    ``maximum``: the largest value, in steps of the grid. ``held``: how many values a threshold is estimated
    from; they get no reading. ``chunk``: values of a hierarchy, the longest range that is measured well.
    ``smoothed``: how many of the lowest levels have no noise of their own. ``drift``: hold back and estimate
    anew after a chunk whose noisy mean is that many times larger or smaller than that of the first chunk
    under this threshold; None never does.
    """

    epsilon: Fraction
    maximum: int
    held: int
    chunk: int
    fanout: int
    smoothed: int
    consistent: bool
    smoother: SmootherKind = "recent"
    length: int = 8
    alpha: Fraction = Fraction(1, 2)
    drift: Fraction | None = None

    def __post_init__(self) -> None:
        for name, low, high in (
            ("maximum", 1, VALUE_LIMIT),
            ("held", 1, HELD_LIMIT),
            ("chunk", 2, 2**32),
            ("fanout", 2, 2**10),
            ("smoothed", 0, height(self.fanout, self.chunk) - 1),
        ):
            if type(getattr(self, name)) is not int or not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} should be an integer in {low}..{high}, not {getattr(self, name)!r}")
        if self.epsilon <= 0 or self.maximum * self.levels > SCALE_LIMIT * self.epsilon:
            raise ValueError(
                f"epsilon {self.epsilon} is not positive, or too small for values to {self.maximum}"
            )
        if self.maximum * self.node > SUM_LIMIT:
            raise ValueError(f"{self.node} values up to {self.maximum} can sum to more than 2**40")
        if self.node * SUM_LIMIT >= 2**63:
            raise ValueError(f"{self.node} values without noise of their own are too many; lower smoothed")
        if self.consistent and self.fanout ** (self.levels - 1) > LEAF_LIMIT:
            raise ValueError(f"a tree has more than {LEAF_LIMIT} leaves; raise smoothed, or lower chunk")
        if self.drift is not None and self.drift <= 1:
            raise ValueError(f"drift should be above 1, not {self.drift}")

    @property
    def levels(self) -> int:
        """Levels with noise."""
        return height(self.fanout, self.chunk) - self.smoothed

    @property
    def node(self) -> int:
        """Values of a leaf, b^s."""
        return int(self.fanout**self.smoothed)


@dataclass(frozen=True, slots=True)
class ValueGuarantee:
    """(epsilon, delta)-differential privacy when one value is replaced; pure where delta is 0."""

    level: Literal["event"]
    epsilon: Fraction
    delta: Fraction


@dataclass(frozen=True, slots=True)
class Readings:
    """What a batch of values gave, in order.

    ``values``: int64, as long as the batch, in steps of the grid, sometimes negative. ``held``: bool, true
    where a value was held back; there is no reading for it, and 0 in its place. ``charges``: what was charged
    while this batch was worked on.
    """

    values: NDArray[np.int64]
    held: NDArray[np.bool_]
    charges: tuple[Charge, ...]


class ValueStream(ABC):
    """A pure state machine over values: no clock, no I/O, noise handed in.

    Given the same snapshot, values and random source, ``step`` returns the same readings.
    """

    kind: ClassVar[str]
    summary: ClassVar[str]
    guarantee: ValueGuarantee

    def __init__(self, shape: PublicSettings, noise: NoiseSource) -> None:
        self.shape, self._noise = shape, noise
        self.units = shape.levels
        self._ledger = PositionLedger(self.units)
        self._smoother = smoother(shape.smoother, shape.length, shape.alpha)
        #: How many values have been seen.
        self.position = 0
        self._held: list[int] = []
        #: Values are cut off here, in steps of the grid; None while values are held back. It is private.
        self.threshold: int | None = None
        self._tree: TreeNoise | None = None  # None between chunks
        self._offset = 0  # values of this chunk
        self._partial = 0  # true sum of the open node
        self._chunk_sum = 0  # noisy sum of this chunk's nodes
        self._reference: int | None = None  # that of the first chunk under this threshold
        self._usable = True

    @property
    def charged_until(self) -> int:
        """All positions before this one have been charged."""
        return self._ledger.charged_until

    def step(self, values: NDArray[np.int64]) -> Readings:
        """Consume a batch of true values (int64, one dimension); an invalid value has become 0 in its place.

        Raises ValueError for another type or shape, and then nothing has changed. After any other error the
        stream takes no further batch until it is restored from a snapshot.
        """
        if type(values) is not np.ndarray or values.dtype != np.int64 or values.ndim != 1:
            raise ValueError("values should be a numpy array of int64 in one dimension")
        if not self._usable:
            raise RuntimeError("an earlier step failed: restore the stream from a snapshot first")
        self._usable = False
        values = clipped(values, self.shape.maximum)
        readings, held = np.zeros(len(values), np.int64), np.zeros(len(values), np.bool_)
        charges: list[Charge] = []
        done = 0
        while done < len(values):
            if self.threshold is None:
                stop = done + min(len(values) - done, self.shape.held - len(self._held))
                held[done:stop] = True
                self._hold(values[done:stop], charges)
            else:
                stop = done + min(len(values) - done, self.shape.chunk - self._offset)
                readings[done:stop] = self._release(values[done:stop], self.threshold, charges)
            done = stop
        self._usable = True
        return Readings(readings, held, tuple(charges))

    @abstractmethod
    def _estimate(self, held: NDArray[np.int64]) -> int:
        """A private threshold of at least 1 from the values held back, whose positions have been charged."""

    def settings(self) -> dict[str, Any]:
        """Everything a state depends on: only a stream with the same may continue it."""
        return {"kind": self.kind, **{name: _plain(value) for name, value in asdict(self.shape).items()}}

    def _hold(self, values: NDArray[np.int64], charges: list[Charge]) -> None:
        self._held += values.tolist()
        self.position += len(values)
        if len(self._held) == self.shape.held:
            charge = Charge("threshold", self.position - self.shape.held, self.position, self.units)
            self._ledger.charge(charge)
            charges.append(charge)
            self.threshold = self._estimate(np.array(self._held, np.int64))
            self._held, self._reference = [], None

    def _release(self, values: NDArray[np.int64], threshold: int, charges: list[Charge]) -> NDArray[np.int64]:
        tree = self._tree or self._plant(threshold, charges)
        size = self.shape.node
        positions = np.arange(self._offset, self._offset + len(values))
        nodes, places = positions // size - self._offset // size, positions % size
        cut = np.minimum(values, threshold)
        complete = (self._offset + len(values)) // size - self._offset // size
        sums = np.zeros(complete + 1, np.int64)
        sums[0] = self._partial
        np.add.at(sums, nodes, cut)
        noisy = np.clip(sums[:-1] + tree.take(complete), -SUM_LIMIT, SUM_LIMIT)
        guesses = self._guesses(noisy, threshold)[nodes]
        readings = (places + 1) * guesses // size - places * guesses // size
        last = places == size - 1
        readings[last] = noisy - (size - 1) * guesses[last] // size
        self._partial = int(sums[-1])
        self._chunk_sum += int(noisy.sum())
        self._offset += len(values)
        self.position += len(values)
        if self._offset == self.shape.chunk:
            self._end_chunk(threshold)
        return readings

    def _guesses(self, noisy: NDArray[np.int64], threshold: int) -> NDArray[np.int64]:
        """A guess for each node that ended in this batch and for the one that is open, in order."""
        if self.shape.node == 1:  # nothing is predicted
            return np.zeros(len(noisy) + 1, np.int64)
        guesses = [self._guess(threshold)]
        for total in noisy.tolist():
            self._smoother.observe(total)
            guesses.append(self._guess(threshold))
        return np.array(guesses, np.int64)

    def _guess(self, threshold: int) -> int:
        guess = self._smoother.predict()
        return threshold * self.shape.node // 2 if guess is None else guess

    def _plant(self, threshold: int, charges: list[Charge]) -> TreeNoise:
        charge = Charge("tree", self.position, self.position + self.shape.chunk, self.shape.levels)
        self._ledger.charge(charge)
        charges.append(charge)
        self._tree = self._new_tree(threshold)
        return self._tree

    def _new_tree(self, threshold: int) -> TreeNoise:
        kind = ConsistentTree if self.shape.consistent else PrefixTree
        return kind(self._noise, self._scale(threshold), self.shape.fanout, self.shape.levels)

    def _scale(self, threshold: int) -> Fraction:
        """Scale of a node's noise."""
        return threshold * self.shape.levels / self.shape.epsilon

    def _end_chunk(self, threshold: int) -> None:
        if self._reference is None:
            self._reference = self._chunk_sum
        elif self._has_drifted(self._chunk_sum, self._reference, threshold):
            self.threshold = None
        self._tree, self._offset, self._partial, self._chunk_sum = None, 0, 0, 0

    def _has_drifted(self, total: int, reference: int, threshold: int) -> bool:
        """Whether noisy sums of whole chunks differ by more than the factor, and by more than their noise."""
        if self.shape.drift is None:
            return False
        # The sum of up to ``fanout`` top nodes, at most 2 scale**2 variance each; four deviations of two.
        noise = isqrt(int(64 * self.shape.fanout * self._scale(threshold) ** 2))
        apart = total > self.shape.drift * reference or total * self.shape.drift < reference
        return apart and abs(total - reference) > noise

    def snapshot(self) -> bytes:
        """The whole state as JSON: sensitive, as it holds true values and noise that is still to be used."""
        if not self._usable:
            raise RuntimeError("an earlier step failed: there is no state to keep")
        return orjson.dumps(
            {
                "settings": self.settings(),
                "position": self.position,
                "charged_until": self._ledger.charged_until,
                "held": self._held,
                "threshold": self.threshold,
                "tree": None if self._tree is None else self._tree.snapshot(),
                "offset": self._offset,
                "partial": self._partial,
                "chunk_sum": self._chunk_sum,
                "reference": self._reference,
                "smoother": [str(number) for number in self._smoother.snapshot()],
            }
        )

    def restore(self, state: bytes) -> None:
        """Continue from ``snapshot()``. ValueError for other bytes, and then nothing has changed."""
        values = _State(orjson.loads(state), self.settings())
        threshold = values.optional("threshold", 1, SCALE_LIMIT)
        held = values.integers("held", 0, self.shape.maximum)
        position, charged = values.integer("position", 0), values.integer("charged_until", 0)
        offset = values.integer("offset", 0, self.shape.chunk - 1)
        partial = values.integer("partial", 0, SUM_LIMIT)
        in_chunk = values.fields["tree"] is not None
        if in_chunk != (offset > 0) or (in_chunk and threshold is None) or (held and threshold is not None):
            raise ValueError("the state is neither holding back, nor in a chunk, nor between chunks")
        if len(held) >= self.shape.held or charged != position - len(held) + (
            self.shape.chunk - offset if in_chunk else 0
        ):
            raise ValueError(f"positions up to {charged} are charged at position {position}")
        remembered = smoother(self.shape.smoother, self.shape.length, self.shape.alpha)
        remembered.restore(values.numbers("smoother"))
        tree = None if threshold is None or not in_chunk else self._new_tree(threshold)
        if tree is not None:
            tree.restore(values.fields["tree"])
        chunk_sum = values.integer("chunk_sum", -POSITION_LIMIT)
        reference = values.optional("reference", -POSITION_LIMIT, POSITION_LIMIT)
        self._chunk_sum, self._reference = chunk_sum, reference
        self._ledger = PositionLedger(self.units, charged)
        self._smoother, self._tree, self.threshold, self._held = remembered, tree, threshold, list(held)
        self.position, self._offset, self._partial = position, offset, partial
        self._usable = True


class _State:
    """The fields of a snapshot, read strictly."""

    _NAMES = (
        *("settings", "position", "charged_until", "held", "threshold", "tree"),
        *("offset", "partial", "chunk_sum", "reference", "smoother"),
    )

    def __init__(self, fields: object, settings: dict[str, Any]) -> None:
        if not isinstance(fields, dict) or tuple(fields) != self._NAMES:
            raise ValueError(f"the state should be an object with {', '.join(self._NAMES)}")
        if fields["settings"] != settings:
            raise ValueError(f"the state belongs to {fields['settings']!r}, not to {settings!r}")
        self.fields = fields

    def integer(self, name: str, low: int, high: int = POSITION_LIMIT) -> int:
        value = self.fields[name]
        if type(value) is not int or not low <= value <= high:
            # Without what it is: that may be a true sum, and the error goes to the log.
            raise ValueError(f"{name} should be an integer in {low}..{high}")
        return value

    def optional(self, name: str, low: int, high: int) -> int | None:
        return None if self.fields[name] is None else self.integer(name, low, high)

    def integers(self, name: str, low: int, high: int) -> Sequence[int]:
        values = self.fields[name]
        if not isinstance(values, list) or any(
            type(each) is not int or not low <= each <= high for each in values
        ):
            raise ValueError(f"{name} should be integers in {low}..{high}")
        return values

    def numbers(self, name: str) -> Sequence[int]:
        """Integers of any size, as JSON parsers differ beyond 2**63: written as text."""
        values = self.fields[name]
        if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
            raise ValueError(f"{name} should be integers as text")
        return [int(each) for each in values]


def clipped(values: NDArray[np.int64], maximum: int) -> NDArray[np.int64]:
    """Values in 0..maximum, cut off on both sides."""
    return np.clip(values, 0, maximum)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Fraction) else value

"""Streams of values: one sanitized reading for each value (decision 9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from eventveil.audit.readings import ReadingsAudit
from eventveil.describe.guarantee import group_delta, half_width, number, void_from
from eventveil.describe.sums import Unbounded
from eventveil.formats.change import Change
from eventveil.formats.reading import terms_of
from eventveil.kinds.kind import StreamKind
from eventveil.kinds.placement import ReadingPlan
from eventveil.model.topology import ReadingStream, Topology
from eventveil.privacy.noise import SystemNoise
from eventveil.tasks.values import VALUE_OUTCOMES
from eventveil.values.kinds import build
from eventveil.values.stream import ValueGuarantee, ValueStream


class Values(StreamKind[ReadingStream, ReadingPlan]):
    """They have no timestamps: each partition of the source continues by itself."""

    name = "values"
    role = "perturb"
    outcomes = VALUE_OUTCOMES
    in_sums = False
    no_second_run = "a value stream"

    def plan(self, topology: Topology, stream: ReadingStream) -> ReadingPlan:
        """See ``StreamKind``."""
        return ReadingPlan(stream, topology.topics.partials)

    def describe(self, topology: Topology, stream: ReadingStream) -> Iterator[str]:
        """See ``StreamKind``."""
        yield from _promised(stream, build(stream, SystemNoise()))

    def settings(self, stream: ReadingStream) -> dict[str, str]:
        """See ``StreamKind``."""
        mechanism = stream.mechanism
        return {"kind": mechanism.kind, "step": stream.step_text, "epsilon per value": mechanism.epsilon_text}

    def unbounded(self, stream: ReadingStream) -> Unbounded:
        """See ``StreamKind``."""
        settings = stream.mechanism
        delta = Fraction(settings.options.get("delta", 0))
        return Unbounded(stream.name, settings.kind, "value", settings.epsilon, delta)

    def audit(self, topology: Topology, stream: ReadingStream, changes: Sequence[Change]) -> ReadingsAudit:
        """See ``StreamKind``."""
        place = self.plan(topology, stream).ledger_partition
        units = build(stream, SystemNoise()).units
        return ReadingsAudit(stream.name, terms_of(stream), stream.step_text, units, place)


def _promised(stream: ReadingStream, mechanism: ValueStream) -> Iterator[str]:
    """The guarantee of a stream in sentences, ``mechanism`` being its state machine."""
    shape, step = mechanism.shape, stream.step_text
    yield from _bound(stream, mechanism.guarantee)
    yield "Not protected: the existence, order, number and timing of values."
    yield (
        f"Values at {stream.source.value} are rounded to steps of {step} and cut off at 0 and"
        f" {number(stream.maximum * stream.step)}; what cannot be read is 0 in its place."
    )
    again = " More are held back whenever the mean moves." if shape.drift is not None else ""
    yield (
        f"Held back: the first {shape.held} values of each partition get no reading, because the threshold is"
        f" estimated from them. Every later one gets a reading, in order.{again}"
    )
    yield (
        f"Noise of each of {shape.levels} levels of a chunk of {shape.chunk} values, the lowest of which sums"
        f" {shape.node}: proportional to the threshold{_worst(stream, mechanism)}."
    )


def _bound(stream: ReadingStream, guarantee: ValueGuarantee) -> Iterator[str]:
    """What is promised of one value, and of several of one user."""
    bound, factor = f"epsilon {stream.mechanism.epsilon_text}", f"e^{number(guarantee.epsilon)}"
    replaced = "for any one value, replaced by any other at its position"
    several = "For a user with k values the bound is k times that epsilon"
    if not guarantee.delta:
        yield (
            f"{bound.capitalize()} {replaced}: it changes the probability of any output by a factor of at"
            f" most {factor}."
        )
        yield f"{several}."
        return
    delta, void = f"{float(guarantee.delta):.3g}", void_from(guarantee.epsilon, guarantee.delta)
    yield (
        f"({bound}, delta {delta}) {replaced}: any set of outputs is at most {factor} times as likely,"
        f" plus {delta}."
    )
    yield (
        f"{several}, and by delta times (e^(k epsilon) - 1) / (e^epsilon - 1): two values by"
        f" {group_delta(guarantee.epsilon, guarantee.delta, 2):.3g}; of {void} or more it is above 1, and"
        " nothing is promised."
    )


def _worst(stream: ReadingStream, mechanism: ValueStream) -> str:
    if not stream.mechanism.options.get("clamp", True):
        return ", which may lie above the maximum"
    scale = mechanism.shape.levels * stream.maximum / mechanism.guarantee.epsilon
    spread = half_width(scale) * stream.step
    return f", at worst within +-{float(spread):.6g} 95 % of the time"

"""What a value stream promises, in plain words."""

from __future__ import annotations

from collections.abc import Iterator

from operators.privacy.guarantee import half_width, number
from operators.topology.model import ReadingStream
from operators.values.stream import ValueStream


def describe(stream: ReadingStream, mechanism: ValueStream) -> Iterator[str]:
    """The guarantee of a stream in sentences, ``mechanism`` being its state machine."""
    guarantee, shape, step = mechanism.guarantee, mechanism.shape, stream.step_text
    delta = f"{float(guarantee.delta):.3g}" if guarantee.delta else ""
    bound = f"epsilon {stream.mechanism.epsilon_text}"
    yield (
        f"{f'({bound}, delta {delta})' if delta else bound.capitalize()} for any one value, replaced by any"
        " other at its position: it changes the probability of any output by a factor of at most"
        f" e^{number(guarantee.epsilon)}{f', but for a probability of {delta}' * bool(delta)}."
    )
    yield "A user with k values is protected by k times that epsilon only."
    yield "Not protected: that there is a value, the order of values, their number, and when they come."
    yield (
        f"Values at {stream.source.value} are rounded to steps of {step} and cut off at 0 and"
        f" {number(stream.maximum * stream.step)}; what cannot be read is 0 in its place."
    )
    again = " A mean that moves has more of them held back." if shape.drift is not None else ""
    yield (
        f"Held back: the first {shape.held} values of each partition get no reading, for a threshold is"
        f" estimated from them. Every later one gets a reading, in order.{again}"
    )
    yield (
        f"Noise of each of {shape.levels} levels of a chunk of {shape.chunk} values, the lowest of which sums"
        f" {shape.node}: proportional to the threshold{_worst(stream, mechanism)}."
    )


def _worst(stream: ReadingStream, mechanism: ValueStream) -> str:
    if not stream.mechanism.options.get("clamp", True):
        return ", which may lie above the maximum"
    scale = mechanism.shape.levels * stream.maximum / mechanism.guarantee.epsilon
    spread = half_width(scale) * stream.step
    return f", at worst within +-{float(spread):.6g} 95 % of the time"

"""What a worker tells producers to send, and the text in which they send it: a public grid of reports.

The worker publishes one control record per stream on a compacted topic. It asks for Square Wave reports until
it has found a threshold, then for Hybrid reports of values cut at that threshold, for good. A report is a
text that says what it was made for, so that one which was made for something else is never summed:

    distribution/1/480/512    output 512 of SquareWave(1, 480)
    sums/1/480/120/17         output 17 of Hybrid(1, 120), for values of at most 480

**Guarantee.** That of the reports (``eventveil.local.reports``): the text is a function of a report and of
public settings. Anyone who may write to the control topic decides what is asked for, but not the epsilon:
that is the producer's own, and a record with another one is refused. A threshold changes how useful a sum is,
never what a report costs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from eventveil.local.reports import Hybrid, SquareWave
from eventveil.local.sampling import Randomness

Phase = Literal["distribution", "sums"]
VERSION = 1
#: Steps of the Hybrid grid here. A value is rounded at random to one of them, which adds at most
#: (threshold / 256)^2 to a variance that is above (threshold / 95)^2 even at epsilon 16.
STEPS = 128
#: So that a timestamp of a million reports stays below the 2^40 of a release.
LARGEST = 1_000_000
#: Reports that a stream can estimate from, and of the longest sum that it can be tuned for.
LONGEST = 2**32
#: What a release shows: the estimated sum of cut values, of how many reports, and how many did not fit.
COLUMNS = ("sum", "reports", "unused")


def thresholds(maximum: int) -> tuple[int, ...]:
    """The thresholds that a stream may choose: whole numbers of at most four binary digits, and ``maximum``.

    Ascending. Neighbours differ by an eighth at most, and the error around the best threshold is flat.
    """
    fine = {digits << shift for digits in range(1, 16) for shift in range(maximum.bit_length())}
    return (*sorted(one for one in fine if one < maximum), maximum)


def reports(epsilon: Fraction, maximum: int) -> Iterator[str]:
    """Every report that a stream can take: those of the distribution, then those of each threshold.

    Raises ValueError for an epsilon or maximum that no report can have.
    """
    if type(maximum) is not int or not 1 <= maximum <= LARGEST:
        raise ValueError(f"the largest value should be an integer in 1..{LARGEST}, not {maximum!r}")
    waves = _mechanism(epsilon, maximum, None).wave.outputs
    yield from (f"{purpose(epsilon, maximum, None)}/{one}" for one in range(waves))
    outputs = range(hybrid(epsilon, maximum).reports)
    for threshold in thresholds(maximum):
        begin = purpose(epsilon, maximum, threshold)
        yield from (f"{begin}/{one}" for one in outputs)


def purpose(epsilon: Fraction, maximum: int, threshold: int | None) -> str:
    """What a report is made for, the beginning of its text: two streams that differ in it share no report."""
    phase, made = _phase(threshold), f"{epsilon}/{maximum}"
    return f"{phase}/{made}" if threshold is None else f"{phase}/{made}/{threshold}"


def square_wave(epsilon: Fraction, maximum: int) -> SquareWave:
    """The mechanism of the first phase."""
    return SquareWave(epsilon, maximum)


def hybrid(epsilon: Fraction, threshold: int) -> Hybrid:
    """The mechanism of the second phase; how many reports it has does not depend on the threshold."""
    return Hybrid(epsilon, threshold, STEPS)


@lru_cache(maxsize=64)
def _mechanism(epsilon: Fraction, maximum: int, threshold: int | None) -> SquareWave | Hybrid:
    return square_wave(epsilon, maximum) if threshold is None else hybrid(epsilon, threshold)


@dataclass(frozen=True, slots=True)
class Control:
    """What a stream asks its producers for (schemas/control.schema.json).

    ``epsilon`` is what one report costs, values are whole numbers in 0..``maximum``. ``threshold`` is None
    while the distribution is being estimated.
    """

    stream: str
    epsilon: Fraction
    maximum: int
    threshold: int | None = None

    @classmethod
    def read(cls, record: bytes | str, epsilon: Fraction) -> Control:
        """The record of a control topic, for a producer who agrees to pay ``epsilon`` for each report.

        Raises ValueError for a record that is malformed, of another version, or asks for another epsilon.
        """
        fields = json.loads(record)
        if not isinstance(fields, dict) or fields.get("version") != VERSION:
            raise ValueError(f"a control record of version {VERSION} was expected, not {record!r:.200}")
        threshold = fields.get("threshold")
        wanted = {"version", "stream", "phase", "epsilon", "maximum"} | (
            {"threshold"} if threshold else set()
        )
        if set(fields) != wanted or fields["phase"] != _phase(threshold):
            raise ValueError(f"the control record is malformed: {record!r:.200}")
        stream, maximum = fields["stream"], fields["maximum"]
        whole = all(type(one) is int for one in (maximum, maximum if threshold is None else threshold))
        if type(stream) is not str or not whole or not 1 <= (threshold or 1) <= maximum <= LARGEST:
            raise ValueError(f"the control record is malformed: {record!r:.200}")
        if fields["epsilon"] != str(epsilon):
            raise ValueError(
                f"stream {stream} asks for reports of epsilon {fields['epsilon']}, not of {epsilon}: nothing"
                " may be sent to it; find out who has changed the stream, or agree to its epsilon"
            )
        return cls(stream, epsilon, maximum, threshold)

    @property
    def phase(self) -> Phase:
        """What reports are for."""
        return _phase(self.threshold)

    @property
    def mechanism(self) -> SquareWave | Hybrid:
        """What makes the reports that are asked for."""
        return _mechanism(self.epsilon, self.maximum, self.threshold)

    def report(self, value: int, randomness: Randomness | None = None) -> str:
        """A random report of a value, which costs epsilon; a retry must send the same text again.

        Values outside of 0..maximum are cut off. Raises ValueError unless ``value`` is an integer.
        """
        report = self.mechanism.report(value, randomness)
        return f"{purpose(self.epsilon, self.maximum, self.threshold)}/{report}"

    def encode(self) -> bytes:
        """The record, byte for byte the same for the same content."""
        fields = {
            "version": VERSION,
            "stream": self.stream,
            "phase": self.phase,
            "epsilon": str(self.epsilon),
            "maximum": self.maximum,
        }
        if self.threshold is not None:
            fields["threshold"] = self.threshold
        return json.dumps(fields, separators=(",", ":")).encode()


def _phase(threshold: object) -> Phase:
    return "distribution" if threshold is None else "sums"

"""Streams of local reports, which producers make private before they send them (decision 12)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import exp, sqrt

from eventveil.describe.events import which_events
from eventveil.describe.guarantee import duration_words, number
from eventveil.describe.sums import Unbounded
from eventveil.kinds.counts import CountsKind
from eventveil.kinds.placement import LocalPlan
from eventveil.mechanisms.local_estimator import worst_variance
from eventveil.model.fields import in_words
from eventveil.model.topology import Stream, Topology


class Local(CountsKind):
    """Counted and released as counts are; what producers are asked for is published too."""

    name = "local"
    raw_events = False
    in_sums = False

    def plan(self, topology: Topology, stream: Stream) -> LocalPlan:
        """See ``StreamKind``."""
        return LocalPlan(stream, topology.topics.partials)

    def beside(self, topology: Topology, stream: Stream) -> tuple[str, ...]:
        """Where producers are asked for reports."""
        return (topology.control,)

    def describe(self, topology: Topology, stream: Stream) -> Iterator[str]:
        """See ``StreamKind``."""
        yield from _promised(stream, topology.control)

    def unbounded(self, stream: Stream) -> Unbounded:
        """See ``StreamKind``."""
        mechanism = stream.mechanism
        return Unbounded(stream.name, mechanism.kind, "report", mechanism.epsilon, Fraction(0))


def _promised(stream: Stream, control: str) -> Iterator[str]:
    """The guarantee of a stream in sentences, ``control`` being the topic that asks for reports."""
    mechanism, source = stream.mechanism, stream.source
    options, epsilon = mechanism.options, mechanism.epsilon
    factor = f"e^{number(epsilon)}" + (f", about {exp(float(epsilon)):.3g}" if epsilon < 10 else "")
    yield (
        f"Epsilon {mechanism.epsilon_text} for any one report, made by its producer before it is sent: its"
        f" value changes the probability of any report by a factor of at most {factor}, for any reader,"
        " also in the raw topic."
    )
    yield (
        "For a user who sends k reports the bound is k times that epsilon, and one who reports in both"
        " phases pays both. The worker cannot bound k: a report that does not count has been sent."
    )
    yield "Not protected: that a report was sent, by whom, for which stream and when."
    yield (
        f"Values are whole numbers, cut off at 0 and {options['maximum']}. Reports at {source.column} count"
        f" for the user at {in_words(source.user, 'or')} ({source.user_type}),"
        f" {stream.counts.contributions} per timestamp of"
        f" {duration_words(stream.timeline.interval)}; one outside of the public grid is a dead letter."
    )
    yield from which_events(source)
    yield (
        f"Phase distribution: once {options['estimate_after']} Square Wave reports have come, a threshold is"
        f" chosen once. Phase sums: Hybrid reports of values cut off there. {control} says"
        " which reports are asked for; those that do not fit are shown as unused."
    )
    share = sqrt(worst_variance(epsilon)) / 2
    yield (
        "Standard deviation of the sum of n reports: at worst"
        f" {share:.3g} times the threshold times the square root of n."
    )

"""The options of mechanisms for counts, and the key that says how long epsilon lasts.

Which kind takes which option says the kind (``Mechanism.options``); those of value streams are in
``eventveil.topology.values``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from eventveil.mechanisms import registry
from eventveil.mechanisms.registry import options_of
from eventveil.model.topology import Level, Option
from eventveil.privacy.gaussian import LEAST_DELTA
from eventveil.topology.fields import Derive, One, Section
from eventveil.topology.periods import BLOCKS, Periods, as_text, blocks_of, derived, in_words
from eventveil.topology.scalars import DELTAS, Choice, Exact, Or, Plain, Rational, Whole

# Budget state holds one spend per timestamp of the window and must stay a Kafka message.
LONGEST_WINDOW = 1_000_000
# Sums over a span must stay exact, and a release with its history a Kafka message.
LONGEST_SPAN = 4096
# The limits of eventveil.mechanisms.groups.
MOST_GROUPS = 1000
LONGEST_PERIOD = 2**20
#: The contribution bound that producers guarantee, and nobody checks: one.
TRUSTED = "trusted"
# The key that says how many timestamps epsilon covers; at event level it is always one.
EXTENT: Mapping[Level, str] = {"w-event": "window", "user": "horizon"}
EXTENT_HELP = {
    "window": "timestamps that are protected together (w)",
    "horizon": "timestamps for which a user is protected, and in which the budget is spent",
}
_PUBLISHED_APART = (
    "which groups are published separately is a function of releases; one ledger counts for all groups"
)


@dataclass(frozen=True)
class MechanismOption:
    """An option of some kinds; eventveil.mechanisms says which, and what ``derived`` values come to.

    ``derive`` is that of its row (``Field``). A setting equal to ``off`` means what leaving it out means,
    also to the fingerprint. ``sound`` is why a migration may change it; None: it may not.
    """

    shape: One
    help: str
    default: str | None = None
    derived: str = ""
    derive: Derive | None = None
    off: Option | None = None
    sound: str | None = None

    @property
    def text(self) -> str:
        """What it is when left out."""
        return self.default or self.derived

    def value(self, given: Any) -> Option | None:
        """The value for a mechanism, of what was read (None: left out); None where it derives its own."""
        if given is None and self.default is not None:
            given = self.shape.of(self.default)
        if isinstance(given, tuple):
            given = as_text(given)
        value: Option | None = given.value if isinstance(given, Exact) else given
        return None if value == self.off else value


OPTIONS: dict[str, MechanismOption] = {
    "factor": MechanismOption(
        One(Rational(1_000_000)),
        "Counts are published anew when they changed by more than this many times the noise.",
        "1",
        sound="a public constant, which says when a release is worth its price",
    ),
    "span": MechanismOption(
        One(Whole(1, LONGEST_SPAN)), "Timestamps in the sliding window of each release.", "1"
    ),
    "share": MechanismOption(
        One(Rational(1)), "Part of epsilon for watching whether counts have changed.", "0.1"
    ),
    "sampling": MechanismOption(
        One(Or("best", Rational(1))),
        "Rate at which events are sampled for watching, in whole percents; the best is always 1.",
        "best",
    ),
    "on_horizon": MechanismOption(
        One(Choice(("repeat", "renew"))),
        "After the horizon: repeat the last release, or renew and spend epsilon again.",
        "repeat",
    ),
    "samples": MechanismOption(
        One(Rational(1)), "Part of the timestamps of a horizon that may be published.", "0.4"
    ),
    "parts": MechanismOption(
        One(Whole(1, LONGEST_SPAN)),
        "Groups in which each window is offered, at most.",
        derived="a tenth of the span, at least 1",
    ),
    "delta": MechanismOption(
        # The mechanisms have the limits of either meaning.
        One(Rational(1_000_000, LEAST_DELTA, 31, f"{DELTAS}; for groups of a window, from 1e-6 to 1000000")),
        "With noise: gaussian, the probability with which the promise of epsilon may fail: far below 1/n"
        " for n users. With groups of a window, how much more a grouping may cost than the best one; a larger"
        " value is faster to compute.",
        derived="none with noise: laplace; 1 / (2 parts) for groups",
        sound="windows across the change are counted in mu squared, with the larger delta",
    ),
    "noise": MechanismOption(
        One(Choice(("laplace", "gaussian"))),
        "laplace: pure epsilon. gaussian: epsilon with a delta, far less noise where much is published.",
        derived="laplace",
        off="laplace",
        sound="from laplace to gaussian: what was spent as epsilon carries over as mu squared",
    ),
    "shift": MechanismOption(
        One(Choice(("true", "false"))),
        "Spend less on the test and more on publications when there are many columns.",
        derived="false",
        off="false",
        sound="it moves budget between spends that the ledger counts alike",
    ),
    "groups": MechanismOption(
        One(Whole(1, MOST_GROUPS)),
        "Groups of columns that are published separately, by how much their releases move.",
        derived="1",
        off=1,
        sound=_PUBLISHED_APART,
    ),
    "regroup": MechanismOption(
        One(Whole(1, LONGEST_PERIOD)),
        "Timestamps after which the groups are formed anew.",
        derived="the window",
        sound=_PUBLISHED_APART,
    ),
    "pan_private": MechanismOption(
        One(Choice(("single", "announced"))),
        "Counters start with noise, so that anyone who looks at them learns little: one unnoticed look, "
        "or announced ones.",
        derived="none",
    ),
    "max_samples": MechanismOption(
        One(Whole(1, LONGEST_WINDOW)),
        "The most samples in a block of as many timestamps as the window.",
        derived="a quarter of the window, at least 1",
        sound="every sample is charged for what it costs",
    ),
    "drift": MechanismOption(
        One(Rational(1_000_000)),
        "How much a count is expected to change in a timestamp (standard deviation).",
        "10",
        sound="a public constant of post-processing",
    ),
    "blocks": MechanismOption(
        BLOCKS,
        "Lengths in timestamps of nested blocks in whose sums noise cancels, such as a day and a week; each a"
        " multiple of the one before.",
        derived="of an hour, a day and a week, at most two that have 6 to 300 parts, else [12, 144]; with"
        " Gaussian noise one more inside of them",
        derive=lambda file, stream, mechanism: _of_interval(
            "blocks", partial(blocks_of, normal=mechanism.get("noise") == "gaussian"), stream, mechanism
        ),
    ),
    "rollups": MechanismOption(
        Periods(),
        "Numbers of consecutive columns that are also looked at together, such as [3, 600] where each of 10"
        " sections has 200 countries of 3 devices; noise cancels in sums over them.",
        derived="none",
        off="",
        sound="how a charge is divided among draws, which the ledger counts as one",
    ),
    "periods": MechanismOption(
        Periods(),
        "Timestamps after which counts may look alike again, such as a day and a week: publications fall on"
        " all their phases, and seasonal expects them as seasons. [] means none.",
        derived="a day and a week, where these are whole numbers of timestamps",
        derive=lambda file, stream, mechanism: _of_interval("periods", derived, stream, mechanism),
        off="",
        sound="public constants of post-processing",
    ),
}


def _of_interval(
    option: str, of: Callable[[int], tuple[int, ...]], stream: Section, mechanism: Section
) -> tuple[tuple[int, ...], str] | None:
    timeline, kind = stream.get("timeline"), mechanism.get("kind")
    interval = timeline.get("interval") if timeline is not None else None
    if not kind or not interval or option not in options_of(kind):
        return None
    return of(interval), in_words(of(interval))


_PLUGIN_OPTION = MechanismOption(One(Plain()), "an option of a plug-in", derived="what the plug-in decides")


def option_of(name: str) -> MechanismOption:
    """An option by its name; those that OPTIONS does not know belong to plug-ins."""
    return OPTIONS.get(name, _PLUGIN_OPTION)


def extent_of(kind: str) -> str | None:
    """The key that says how many timestamps epsilon covers; None at event level."""
    return EXTENT.get(registry.find(kind).level)


def covered(mechanism: Section) -> int | None:
    """The number of timestamps that epsilon covers; None if it could not be read."""
    kind = mechanism.get("kind")
    extent = extent_of(kind) if kind else "window"
    window: int | None = mechanism.get(extent) if extent else 1
    return window

"""The errors of Eventveil: what is wrong, where, and the remedy."""

from __future__ import annotations


class EventveilError(Exception):
    """Base of every error that Eventveil raises on purpose."""


class StateRefused(EventveilError):
    """State or surroundings leave a doubt whether a release would keep the guarantee.

    The invariant is I6 of docs/invariants.md.
    ``place`` names the topic, partition, stream or setting; ``remedy`` says what the operator of the
    pipeline can do. A component that raises it releases nothing.
    """

    def __init__(self, place: str, what: str, remedy: str) -> None:
        super().__init__(f"{place}: {what}. {remedy}")
        self.place, self.what, self.remedy = place, what, remedy


class Unsettled(EventveilError):
    """A doubt that a later check may settle: one broker has said something that another may contradict.

    Nothing is concluded from it. ``place`` and ``what`` are as in StateRefused. The log shows both, so
    neither tells an offset of a raw topic. ``refusal`` is what the doubt becomes if every check finds the
    same for as long as a worker is patient (``eventveil.process.patience``); None if it is checked without
    end. ``advice`` is what can be done at once because it costs nothing, whether or not the doubt stays.
    """

    def __init__(
        self, place: str, what: str, refusal: EventveilError | None = None, advice: str = ""
    ) -> None:
        super().__init__(f"{place}: {what}. {advice or 'This may be temporary'}")
        self.place, self.what, self.refusal = place, what, refusal


def doubt(place: str, what: str, remedy: str) -> Unsettled:
    """The doubt about what a broker says of topics and offsets, which is refused only if it stays."""
    return Unsettled(
        place, what, StateRefused(place, f"{what}. Repeated checks gave the same result", remedy)
    )


def missing(topic: str) -> Unsettled:
    """The doubt whether a topic exists."""
    remedy = (
        "If its name is right in the file, run `eventveil topics TOPOLOGY`, which says what is missing and"
        " how to create it"
    )
    found = doubt(f"topic {topic}", "it does not exist", remedy)
    return Unsettled(found.place, found.what, found.refusal, f"A broker may not know of it yet. {remedy}")


class BudgetExceeded(EventveilError):
    """A spend was refused because it would lift some window above epsilon."""


class PluginRefused(ValueError):
    """A mechanism from outside cannot be used; the text says which, why, and the remedy."""


class UnfitSetting(ValueError):
    """A setting that a mechanism cannot honour; ``setting`` is its name in a topology."""

    def __init__(self, setting: str, what: str) -> None:
        super().__init__(what)
        self.setting = setting

"""``mechanism`` of a stream of counts: its table, with the options of every kind and those of plug-ins."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from eventveil.describe.guarantee import number
from eventveil.mechanisms import plugins, registry
from eventveil.mechanisms.registry import options_of
from eventveil.mechanisms.totals import Totals
from eventveil.model.errors import PluginRefused
from eventveil.privacy.gaussian import LARGEST_DELTA
from eventveil.topology.document import Node, Scalar, Table
from eventveil.topology.fields import Field, Invalid, Kept, One, ReadingPass, RecordShape, Section
from eventveil.topology.options import EXTENT, EXTENT_HELP, LONGEST_WINDOW, OPTIONS, TRUSTED, extent_of
from eventveil.topology.scalars import (
    NAME_OF,
    Choice,
    Plain,
    Rational,
    Schema,
    UnavailableError,
    Whole,
    duration_text,
    is_text,
    one_of,
)
from eventveil.values.kinds import VALUE_KINDS

# Half of it is for the worker to hear of a look (ms), half for the look.
LEAST_ROOM = 2000
_TESTS = "it tests with Laplace noise whether to publish, and the accounting is for Gaussian noise alone"
#: Why a kind cannot have Gaussian noise, where there is a reason of its own.
NOT_GAUSSIAN = {
    "budget-distribution": _TESTS,
    "budget-absorption": _TESTS,
    "retroactive-grouping": "it watches counts with Laplace noise, and the accounting is for Gaussian alone",
}
EVERY_KIND = (*sorted(registry.KINDS), *VALUE_KINDS, *registry.LOCAL_KINDS)


class KindOfMechanism(Choice):
    """A kind of mechanism: one of Eventveil, or a plug-in, which is imported."""

    def parse(self, scalar: Scalar) -> str:
        """The kind's name."""
        # To ask what is installed takes longer than all else of a topology.
        if not is_text(scalar) or scalar.text in self.words or not _is_plugin(scalar.text):
            return super().parse(scalar)
        try:
            registry.find(scalar.text)
        except PluginRefused as refused:
            raise UnavailableError(str(refused)) from None
        return scalar.text

    def strict_schema(self) -> Schema:
        """An enumeration, with the plug-ins that are installed here, or any module:Class."""
        names = [name for name in plugins.installed() if name not in self.words]
        target = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"}
        return {NAME_OF: "kind", "anyOf": [{"enum": [*self.words, *names]}, target]}


def _is_plugin(kind: str) -> bool:
    return ":" in kind or kind in plugins.installed()


#: The keys that every kind has.
_ALWAYS = ("kind", "epsilon", "adjacency")


class RecordOfMechanism(RecordShape):
    """The keys of every mechanism of Eventveil, and the options that a plug-in declares for itself."""

    def read(self, node: Node, name: str, reading: ReadingPass) -> Section | Invalid:
        """See ``RecordShape.read``."""
        own = tuple(Field(option, One(Plain()), "an option of a plug-in") for option in self._own(node))
        shape = RecordShape(
            (*self.fields, *own), later=self.later, check=self.check, offered=self._offered(node)
        )
        return shape.read(node, name, reading)

    def _offered(self, node: Node) -> tuple[str, ...]:
        """The keys of the kind in the file; none if that is not one of Eventveil."""
        kind = node.entries.get("kind") if isinstance(node, Table) else None
        if not isinstance(kind, Scalar) or kind.text not in registry.KINDS:
            return ()
        extent = extent_of(kind.text)
        return (*_ALWAYS, *([extent] if extent else ()), *sorted(options_of(kind.text)))

    def _own(self, node: Node) -> Iterable[str]:
        """The options that only the plug-in knows; all keys if it was refused: one mistake is enough."""
        kind = node.entries.get("kind") if isinstance(node, Table) else None
        if not isinstance(kind, Scalar) or not isinstance(node, Table) or kind.text in registry.KINDS:
            return ()
        known = {field.name for field in self.fields}
        try:
            return sorted(options_of(kind.text) - known)
        except PluginRefused:
            return [key for key in node.entries if key not in known] if ":" in kind.text else ()

    def schema(self) -> Schema:
        """As for every record, but that beside a kind which is not of Eventveil other keys may stand."""
        more = {"type": ["string", "number", "boolean"]}
        return {**super().schema(), "additionalProperties": more, **_keys_of_kinds(_ALWAYS)}


def _keys_of_kinds(always: tuple[str, ...]) -> Schema:
    """The rule that each kind has its own keys, beside those of all (``always``), and which one it needs."""
    alike: dict[tuple[str | None, frozenset[str]], list[str]] = {}
    for kind in sorted(registry.KINDS):
        alike.setdefault((extent_of(kind), options_of(kind)), []).append(kind)

    def rule(extents: list[str], options: frozenset[str], kinds: list[str]) -> Schema:
        return {
            "if": {"properties": {"kind": {"enum": kinds}}, "required": ["kind"]},
            "then": {"required": extents, "propertyNames": {"enum": [*always, *extents, *sorted(options)]}},
        }

    return {"allOf": [rule([key] if key else [], options, some) for (key, options), some in alike.items()]}


def _check(file: Section, stream: Section, mechanism: Section) -> None:
    _check_extent(mechanism)
    _check_options(mechanism)
    _check_noise(mechanism)
    _check_pan_private(stream, mechanism)
    _check_minimum(stream, mechanism)


def _check_minimum(stream: Section, mechanism: Section) -> None:
    """Noise that is to cancel in sums must not be cut off."""
    kind, sink = mechanism.get("kind"), stream.get("sink")
    if kind == Totals.kind and sink is not None and sink.get("minimum") is not None:
        sink.wrong(
            "minimum",
            f"the noise of {kind} cancels in sums only with negative counts left as they are; remove it",
        )


def _check_extent(mechanism: Section) -> None:
    """A kind has the one key that says how many timestamps its epsilon covers, and no other."""
    kind = mechanism.get("kind")
    if kind is None:
        return
    needed = extent_of(kind)
    if needed and needed not in mechanism.positions and needed not in mechanism.misspelt:
        mechanism.note(needed, f"{mechanism.path} lacks {needed}; add {needed}: {EXTENT_HELP[needed]}")
    for key in EXTENT.values():
        if key != needed and key in mechanism.positions:
            instead = f"its epsilon covers a {needed}" if needed else "its epsilon covers single timestamps"
            mechanism.wrong(key, f"{kind} has no {key}, {instead}; remove it")


def _check_options(mechanism: Section) -> None:
    kind = mechanism.get("kind")
    if kind is None:
        return
    for option in OPTIONS:
        if option == "noise" and option in mechanism.positions and option not in options_of(kind):
            mechanism.wrong(option, _why_laplace(kind))
        elif option == "delta" and mechanism.get("noise") == "gaussian" and "noise" not in options_of(kind):
            continue  # it goes with the noise
        elif option in mechanism.positions and option not in options_of(kind):
            kinds = tuple(sorted(other for other in registry.KINDS if option in options_of(other)))
            mechanism.wrong(option, f"{kind} has no option {option}; remove it, or use {one_of(kinds)}")


def _why_laplace(kind: str) -> str:
    """Why a kind has no choice of noise."""
    takers = one_of(tuple(sorted(other for other in registry.KINDS if "noise" in options_of(other))))
    why = NOT_GAUSSIAN.get(kind, "it is proved for Laplace noise alone")
    return f"{kind} has no Gaussian noise, because {why}; remove it, or use {takers}"


def _check_noise(mechanism: Section) -> None:
    """Gaussian noise needs a delta that promises something, and nothing else has one of that meaning."""
    kind, noise, given = mechanism.get("kind"), mechanism.get("noise"), mechanism.get("delta")
    if kind is None or not {"noise", "delta"} & options_of(kind):
        return
    gaussian = noise == "gaussian" and "noise" in options_of(kind)
    if gaussian and "delta" not in mechanism.positions:
        mechanism.wrong(
            "noise",
            "gaussian needs a delta, the probability with which the promise may fail; add delta: 1e-9, or"
            " for n users at most 1 / (1000 n)",
        )
    if given is None:
        return
    if gaussian and given.value > LARGEST_DELTA:
        mechanism.wrong(
            "delta",
            f"found {given.text}, expected at most {number(LARGEST_DELTA)}; a mechanism that publishes each"
            " user with that probability would keep the promise, so choose it far below 1/n for n users, such"
            " as 1e-9",
        )
    elif not gaussian and "noise" in options_of(kind):
        mechanism.wrong("delta", "is for noise: gaussian; add that, or remove it")
    elif not gaussian and given.value < Fraction(1, 10**6):
        mechanism.wrong("delta", f"found {given.text}, expected at least 1/1000000")


#: Of records of a pan-private stream. Which of them are depends on whose events count.
_TWICE = "records are judged twice"


def _check_pan_private(stream: Section, mechanism: Section) -> None:
    """What pan-privacy needs of the other settings (docs/decisions/0011-pan-private.md)."""
    counts = stream.get("counts")
    trusted = counts is not None and counts.get("contributions") == TRUSTED
    if mechanism.get("pan_private") is None:
        if counts is not None and trusted and "pan_private" not in mechanism.positions:
            counts.wrong(
                "contributions",
                "trusted is for streams with pan_private, where nobody can check it; give the bound as a"
                " whole number",
            )
        return
    needs = (
        (counts, "contributions", TRUSTED, "bounding takes a set of users, which is raw data"),
        (mechanism, "adjacency", "substitute", "a look at the worker shows that events happened"),
        (stream.get("source"), "repartition", "false", "a topic of re-keyed events is a copy of them"),
        (stream.get("source"), "append_time", "broker", "boundaries are for partitions of raw counts"),
        (stream.get("source"), "format", "json", f"{_TWICE}, and a schema may become known in between"),
        (stream.get("source"), "time_zone", None, f"{_TWICE}, and time zones follow a database"),
        (stream.get("timeline"), "on_missing", "wait", "its one partition cannot be left out"),
    )
    _check_room(stream.get("timeline"), mechanism)
    for section, key, needed, why in needs:
        if section is not None and section.get(key) not in (needed, None):
            what = f"no {key}" if needed is None else f"{key}: {needed}"
            section.wrong(key, f"pan_private needs {what}, because {why}")


def _check_room(timeline: Section | None, mechanism: Section) -> None:
    """A look is announced in the first half of the time between two releases, and a worker needs a while."""
    if timeline is None or mechanism.get("pan_private") != "announced":
        return
    interval, skew = timeline.get("interval"), timeline.get("clock_skew")
    if interval is not None and skew is not None and interval < skew + LEAST_ROOM:
        timeline.wrong(
            "interval",
            f"is {duration_text(interval)}; for announced looks it has to exceed clock_skew by"
            f" {duration_text(LEAST_ROOM)}: lengthen it, or use pan_private: single",
        )


_NOISES = {
    "laplace": "it is the default noise, not a kind; write a kind, such as seasonal or uniform",
    "gaussian": "it is a noise: write a kind, such as seasonal or uniform, with noise: gaussian and a delta",
}
KIND = One(KindOfMechanism(EVERY_KIND, _NOISES))
MECHANISM = RecordOfMechanism(
    (
        Field(
            "kind", KIND, f"mechanism, {one_of(EVERY_KIND)}; or a plug-in, module:Class", True,
            kept=Kept(
                "every kind counts its spends in the same way: the budget carries over", sound=True
            ),
        ),
        Field(
            "epsilon", One(Rational(1000)), "privacy budget of a window, read exactly, such as 1.0", True,
            kept=Kept(
                "what was spent carries over, in absolute terms",
                sound=True, value=lambda mechanism: str(mechanism.epsilon),
            ),
        ),
        Field(
            "window", One(Whole(1, LONGEST_WINDOW, "timestamps")), EXTENT_HELP["window"],
            kept=Kept("what was spent carries over, for windows of the larger width", sound=True),
        ),
        Field("horizon", One(Whole(1, LONGEST_WINDOW)), EXTENT_HELP["horizon"]),
        *(
            Field(
                name, option.shape, option.help,
                derived=f"{option.text}, for kinds that have it", derive=option.derive,
            )
            for name, option in OPTIONS.items()
        ),
        Field(
            "adjacency", One(Choice(("add-remove", "substitute"))),
            "What may differ at a protected timestamp: whether users are there, or also what they do.",
            default="add-remove",
            kept=Kept("what was spent under one adjacency says nothing under the other"),
        ),
    ),
    title="counts-mechanism",
    check=_check,
)  # fmt: skip

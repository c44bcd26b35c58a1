"""``eventveil mechanisms``: the kinds of mechanism, guarantees and options; ``test``: their contract."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

import click

from eventveil.cli.loading import EXIT_FAILED
from eventveil.mechanisms import plugins
from eventveil.mechanisms import registry as kinds
from eventveil.mechanisms.base import Guarantee, Mechanism
from eventveil.mechanisms.contract import LIMITS, PROPERTIES, PropertyResult, judge
from eventveil.mechanisms.contract.subject import Subject
from eventveil.model.errors import PluginRefused, UnfitSetting
from eventveil.model.spelling import suggestion
from eventveil.model.topology import MechanismSettings, Option
from eventveil.privacy.noise import SystemNoise
from eventveil.topology.document import Scalar
from eventveil.topology.fields import Field
from eventveil.topology.local import OPTIONS as OPTIONS_OF_REPORTS
from eventveil.topology.options import EXTENT, option_of
from eventveil.topology.problems import START
from eventveil.topology.scalars import UnfitError
from eventveil.topology.values import OPTIONS as OPTIONS_OF_VALUES
from eventveil.values.kinds import VALUE_KINDS

_WINDOW = 100
_COVERED = "it covers whether a user is there, with `adjacency: substitute` also what the user does"
_LEVELS = {
    "w-event": f"w-event: epsilon for any `window` consecutive timestamps of a user; {_COVERED}",
    "event": f"event level: epsilon for any one timestamp of a user; {_COVERED}",
    "user": f"user level: epsilon for a `horizon` of timestamps of a user; {_COVERED}",
}

#: Why the kinds that the suite is not for are not tried.
_NOT_TRIED = {
    **dict.fromkeys(VALUE_KINDS, "gives readings of values"),
    **dict.fromkeys(OPTIONS_OF_REPORTS, "sums reports that are private already"),
}


@click.group(invoke_without_command=True)
@click.pass_context
def mechanisms(context: click.Context) -> None:
    """List the kinds of mechanism with their guarantees and options."""
    if context.invoked_subcommand is None:
        click.echo("\n".join(describe_kinds()))


def describe_kinds() -> Iterator[str]:
    """The lines that are printed: a paragraph per kind, those of plug-ins that are installed last."""
    for kind, mechanism in kinds.KINDS.items():
        yield f"{kind}: {mechanism.summary}"
        yield from (f"  {line}" for line in _describe(mechanism))
        yield ""
    for kind, values in VALUE_KINDS.items():
        yield f"{kind}: {values.summary}"
        yield from (f"  {line}" for line in _describe_values(kind))
        yield ""
    for kind in OPTIONS_OF_REPORTS:
        yield f"{kind}: {kinds.OWN[kind].summary}"
        yield from (f"  {line}" for line in _describe_local(kind))
        yield ""
    for kind in plugins.installed():
        yield from _describe_plugin(kind)
        yield ""
    yield "`eventveil check` says what a topology's own settings mean, in words and numbers."


def _describe(mechanism: type[Mechanism]) -> Iterator[str]:
    guarantee = _example(mechanism)
    yield f"guarantee: {_LEVELS[guarantee.level]}"
    extent = EXTENT.get(guarantee.level)
    setting = f", {extent} {_WINDOW}" if extent else ""
    yield f"noise of a fresh count, at epsilon 1{setting}, one contribution: {_noise(guarantee)}"
    yield from _options(mechanism)


def _options(mechanism: type[Mechanism]) -> Iterator[str]:
    if not mechanism.options:
        yield "options: none"
    for option in sorted(mechanism.options):
        yield f"option {option} (default {option_of(option).text}): {option_of(option).help}"


def _describe_plugin(kind: str) -> Iterator[str]:
    """A plug-in has its own idea of the settings that it needs, so there is no example of its noise."""
    if kind in kinds.OWN:
        yield f"{kind}: a plug-in of this name is installed but not used; the built-in kind is"
        return
    try:
        plugin = kinds.plugin_of(kind)
    except PluginRefused as refused:
        yield f"{kind}: cannot be used: {refused}"
        return
    assert plugin is not None
    yield f"{kind}: {plugin.mechanism.summary}"
    yield f"  plug-in: {plugin.target} of {plugin.distribution}; its guarantee is its author's to prove"
    yield f"  guarantee: {_LEVELS[plugin.mechanism.level]}"
    yield from (f"  {line}" for line in _options(plugin.mechanism))


def _describe_values(kind: str) -> Iterator[str]:
    yield "guarantee: value stream, event level: epsilon for any one value, replaced in its place"
    yield from _fields(OPTIONS_OF_VALUES[kind])


def _describe_local(kind: str) -> Iterator[str]:
    yield "guarantee: local, epsilon for any one report, which its producer has made private"
    yield from _fields(OPTIONS_OF_REPORTS[kind])


def _fields(options: Iterable[Field]) -> Iterator[str]:
    for option in options:
        default = f" (default {option.default or option.derived})" if not option.required else " (required)"
        yield f"option {option.name}{default}: {option.help}"


def _example(mechanism: type[Mechanism]) -> Guarantee:
    window = _WINDOW if mechanism.level in EXTENT else 1
    settings = MechanismSettings(mechanism.kind, Fraction(1), "1", window)
    return mechanism(settings, columns=1, sensitivity=1, noise=SystemNoise()).guarantee


def _noise(guarantee: Guarantee) -> str:
    best, worst = guarantee.best_scale, guarantee.worst_scale
    if worst == best:
        return f"scale {float(best):.6g}"
    at_worst = "without bound" if worst is None else f"{float(worst):.6g}"
    return f"scale {float(best):.6g} at best, {at_worst} at worst"


@mechanisms.command()
@click.argument("kind", metavar="module:Class|KIND")
@click.option("--option", "given", multiple=True, metavar="NAME=VALUE", help="An option to test it with.")
@click.pass_context
def test(context: click.Context, kind: str, given: tuple[str, ...]) -> None:
    """Test a mechanism against the contract: a plug-in, or a built-in kind.

    Prints each property with what was tried and, where it fails, a counterexample. Exit status 1 if one does,
    or if the class cannot be used at all. Imports the module, so runs its code.
    """
    if kind in _NOT_TRIED:
        raise click.UsageError(f"{kind} {_NOT_TRIED[kind]}; this suite tries mechanisms for counts")
    try:
        mechanism = kinds.find(kind)
    except PluginRefused as refused:
        click.echo(f"eventveil mechanisms test: {refused}", err=True)
        context.exit(EXIT_FAILED)
    subject = Subject(mechanism, dict(_option(mechanism, one) for one in given))
    _check_options(subject)
    click.echo(f"{subject.name}: {mechanism.summary}")
    passed = True
    for one in PROPERTIES:
        finding = judge(one, subject)
        passed &= finding.counterexample is None
        click.echo("\n".join(_lines(finding)))
    click.echo(f"\n{'Passed' if passed else 'FAILED'}. {LIMITS}")
    context.exit(0 if passed else EXIT_FAILED)


def _option(mechanism: type[Mechanism], text: str) -> tuple[str, Option]:
    """An option as a topology would have it. Fails, which is wrong usage, for what it cannot be."""
    name, _, value = text.partition("=")
    if name not in mechanism.options:
        remedy = suggestion(name, mechanism.options)
        raise click.UsageError(f"--option {text}: {mechanism.kind} has no option {name!r}; {remedy}")
    try:
        read = option_of(name).value(option_of(name).shape.kind.parse(Scalar(START, value)))
    except UnfitError as unfit:
        raise click.UsageError(f"--option {text}: found {value!r}, expected {unfit.expected}") from None
    return name, read if read is not None else value


def _check_options(subject: Subject) -> None:
    """Fails, which is wrong usage, for options that the mechanism cannot have as the suite tries it."""
    try:
        subject.try_options()
    except UnfitSetting as unfit:
        if unfit.setting not in subject.mechanism.options:
            return  # the class asks for what no option can give, as the suite will find
        raise click.UsageError(f"--option {unfit.setting}: {unfit}") from None


def _lines(finding: PropertyResult) -> Iterator[str]:
    verdict = "ok    " if finding.counterexample is None else "FAILED"
    yield f"{verdict} {finding.property.name}: {finding.property.says}"
    if finding.tried:
        yield f"       tried: {finding.tried}"
    if finding.counterexample is not None:
        yield f"       counterexample: {finding.counterexample}"

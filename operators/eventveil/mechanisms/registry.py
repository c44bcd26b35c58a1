"""The mechanisms by kind, and the one way to make one."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Container, Mapping
from dataclasses import replace

from eventveil.mechanisms import plugins
from eventveil.mechanisms.base import Mechanism
from eventveil.mechanisms.budget_absorption import BudgetAbsorption
from eventveil.mechanisms.budget_distribution import BudgetDistribution
from eventveil.mechanisms.fast import Fast
from eventveil.mechanisms.paced import Paced
from eventveil.mechanisms.pan_private import PAN_PRIVATE
from eventveil.mechanisms.plugins import Plugin
from eventveil.mechanisms.retroactive_grouping import RetroactiveGrouping
from eventveil.mechanisms.sample import Sample
from eventveil.mechanisms.seasonal import Seasonal
from eventveil.mechanisms.shp_adaptive import ShpAdaptive
from eventveil.mechanisms.shp_point import ShpPoint
from eventveil.mechanisms.shp_window import ShpWindow
from eventveil.mechanisms.time_unit import TimeUnit
from eventveil.mechanisms.topl import Topl
from eventveil.mechanisms.totals import Totals
from eventveil.mechanisms.uniform import Uniform
from eventveil.model.errors import PluginRefused, UnfitSetting
from eventveil.model.topology import MechanismSettings, Stream
from eventveil.privacy.noise import NoiseSource

KINDS: dict[str, type[Mechanism]] = {
    mechanism.kind: mechanism
    for mechanism in (
        Uniform,
        Sample,
        BudgetDistribution,
        BudgetAbsorption,
        Fast,
        Paced,
        Seasonal,
        TimeUnit,
        RetroactiveGrouping,
        Totals,
        ShpWindow,
        ShpPoint,
        ShpAdaptive,
    )
}

#: Their streams have reports that were made private before they came; otherwise they are run as all others.
LOCAL_KINDS: dict[str, type[Mechanism]] = {Topl.kind: Topl}

#: Those of Eventveil, whose names no plug-in can have.
OWN: Mapping[str, type[Mechanism]] = ChainMap(KINDS, LOCAL_KINDS)

#: The option that makes another mechanism of a kind that has it.
PAN = "pan_private"


def plugin_of(kind: str) -> Plugin | None:
    """The plug-in that a kind names, None for a kind of Eventveil. Raises PluginRefused for anything else."""
    return None if kind in OWN else plugins.load(kind, frozenset(OWN))


def find(kind: str, options: Container[str] = ()) -> type[Mechanism]:
    """The class of a kind with options, also of a plug-in, which is imported.

    Raises PluginRefused, a ValueError.
    """
    plugin = plugin_of(kind)
    return plugin.mechanism if plugin else _own(options)[kind]


def known(kind: str, options: Container[str] = ()) -> type[Mechanism] | None:
    """The class of a kind that a record names: of Eventveil, or a plug-in that is in use; imports nothing."""
    plugin = plugins.loaded(kind)
    return plugin.mechanism if plugin else _own(options).get(kind)


def options_of(kind: str) -> frozenset[str]:
    """The options that a kind takes. Raises PluginRefused."""
    return frozenset(find(kind).options | (find(kind, {PAN}).options if kind in PAN_PRIVATE else frozenset()))


def _own(options: Container[str]) -> Mapping[str, type[Mechanism]]:
    return {**OWN, **PAN_PRIVATE} if PAN in options else OWN


def of_stream(stream: Stream, noise: NoiseSource) -> Mechanism:
    """The mechanism of a stream, at its first timestamp. Raises as ``build`` does."""
    settings = replace(stream.mechanism, per_column=stream.counts.per_column)
    return build(settings, len(stream.counts.labels), stream.sensitivity, noise)


def draws_by_column(kind: type[Mechanism]) -> bool:
    """Whether the class itself declares it: one that is derived from it may draw otherwise."""
    return vars(kind).get("columns_apart") is True


def build(settings: MechanismSettings, columns: int, sensitivity: int, noise: NoiseSource) -> Mechanism:
    """The mechanism that the settings ask for, at its first timestamp.

    Raises ValueError for an unknown kind or option, or for settings that the kind cannot honour;
    PluginRefused, which is one, for a plug-in that does not keep to the rules.
    """
    plugin = plugin_of(settings.kind)
    kind = plugin.mechanism if plugin else _own(settings.options)[settings.kind]
    if settings.per_column is not None and settings.delta is not None and not draws_by_column(kind):
        raise UnfitSetting(
            "per_column",
            f"{settings.kind} may draw Gaussian noise for sums over columns, which a user changes by all of"
            " contributions; remove it, or use noise: laplace",
        )
    if plugin is None:
        return kind(settings, columns, sensitivity, noise)
    try:
        mechanism = plugin.mechanism(settings, columns, sensitivity, noise)
    except ValueError:
        raise
    except Exception as error:
        raise PluginRefused(f"{settings.kind} cannot be made: {error!r}; correct the class") from error
    plugins.check_promise(mechanism, settings, sensitivity)
    return mechanism

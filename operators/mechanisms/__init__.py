"""The mechanisms by kind, and the one way to make one."""

from __future__ import annotations

from operators.mechanisms.base import Mechanism
from operators.mechanisms.budget_absorption import BudgetAbsorption
from operators.mechanisms.budget_distribution import BudgetDistribution
from operators.mechanisms.fast import Fast
from operators.mechanisms.retroactive_grouping import RetroactiveGrouping
from operators.mechanisms.sample import Sample
from operators.mechanisms.shp_adaptive import ShpAdaptive
from operators.mechanisms.shp_point import ShpPoint
from operators.mechanisms.shp_window import ShpWindow
from operators.mechanisms.time_unit import TimeUnit
from operators.mechanisms.uniform import Uniform
from operators.privacy.noise import NoiseSource
from operators.topology.model import MechanismSettings

KINDS: dict[str, type[Mechanism]] = {
    mechanism.kind: mechanism
    for mechanism in (
        Uniform,
        Sample,
        BudgetDistribution,
        BudgetAbsorption,
        Fast,
        TimeUnit,
        RetroactiveGrouping,
        ShpWindow,
        ShpPoint,
        ShpAdaptive,
    )
}


def build(settings: MechanismSettings, columns: int, sensitivity: int, noise: NoiseSource) -> Mechanism:
    """The mechanism that the settings ask for, at its first timestamp.

    Raises ValueError for an unknown kind or option, or for settings that the kind cannot honour.
    """
    if settings.kind not in KINDS:
        raise ValueError(f"there is no mechanism {settings.kind!r}, only {', '.join(KINDS)}")
    return KINDS[settings.kind](settings, columns, sensitivity, noise)

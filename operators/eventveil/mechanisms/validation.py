"""Values out of settings and states, each refused if no such mechanism can have it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from eventveil.mechanisms.base import Counts
from eventveil.model.errors import UnfitSetting


def whole_option(options: Mapping[str, object], name: str, default: int, low: int, high: int) -> int:
    """An option that is a whole number in low..high, or such a number as text; UnfitSetting otherwise."""
    value = options.get(name, default)
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if type(value) is not int or not low <= value <= high:
        raise UnfitSetting(name, f"found {value}, expected a whole number from {low} to {high}")
    return value


def integers(values: object, size: int, limit: int, name: str) -> Counts:
    """An array of ``size`` integers within +-limit, out of a state; ValueError otherwise."""
    if not isinstance(values, list) or len(values) != size or any(type(value) is not int for value in values):
        raise ValueError(f"{name} should be an array of {size} integers")
    if values and max(map(abs, values)) > limit:
        raise ValueError(f"{name} should lie within +-{limit}")
    return np.array(values, np.int64)


def integer_between(value: object, low: int, high: int, name: str) -> int:
    """``value`` if it is an integer in low..high; ValueError otherwise."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} should be an integer in {low}..{high}, not {value!r}")
    return value

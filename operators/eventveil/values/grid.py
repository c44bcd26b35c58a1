"""Values on a public grid: real numbers become integers once, at the edge, and stay integers.

A value v becomes the nearest multiple of the public ``step``, clipped on both sides to 0..maximum steps. An
invalid value becomes 0 *in its place*: were it dropped, every later value would move by a position, and one
replaced value would change the whole stream.
"""

from __future__ import annotations

from fractions import Fraction
from math import isfinite
from typing import TypeGuard


def on_grid(value: object, step: Fraction, maximum: int) -> int:
    """A JSON value as a number of steps in 0..maximum; 0 if it is not a finite number.

    Exact: halves are rounded up. Raises ValueError unless ``step`` > 0 and ``maximum`` >= 1.
    """
    if step.numerator <= 0 or maximum < 1:
        raise ValueError(f"step should be above 0 and maximum at least 1, not {step} and {maximum}")
    return _rounded(value, step, maximum) if is_number(value) else 0


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a JSON value is a finite number; what is not has the value 0."""
    return not isinstance(value, bool) and isinstance(value, int | float) and isfinite(value)


def _rounded(value: int | float, step: Fraction, maximum: int) -> int:
    # In integers, which are several times as fast as fractions: floor(value / step + 1 / 2).
    above, below = value.as_integer_ratio()
    width = step.numerator * below
    return min(max((2 * above * step.denominator + width) // (2 * width), 0), maximum)

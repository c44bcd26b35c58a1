"""Arrays of numbers as text in a JSON state: base64 of little-endian numbers, exact and half as long."""

from __future__ import annotations

import base64
from math import prod

import numpy as np

from eventveil.mechanisms.arithmetic import Floats

BYTES = 11
"""The most that one number takes, on average, of an array of three or more."""


def data_of(text: object, name: str) -> bytes:
    """The bytes that base64 text stands for; ValueError if ``text`` is none."""
    try:
        return base64.b64decode(text if isinstance(text, str) else "!", validate=True)
    except ValueError:  # of text that is not ASCII too
        raise ValueError(f"{name} should be numbers as base64 text") from None


def packed(array: Floats) -> str:
    """The numbers as text, row by row."""
    return base64.b64encode(np.ascontiguousarray(array, "<f8").tobytes()).decode()


def unpacked(text: object, shape: tuple[int, ...], name: str) -> Floats:
    """A new array of that shape; ValueError unless ``text`` holds as many finite numbers."""
    data, size = data_of(text, name), prod(shape)
    if len(data) != 8 * size:
        raise ValueError(f"{name} should be {size} numbers, not {len(data)} bytes")
    array = np.frombuffer(data, "<f8").astype(np.float64).reshape(shape)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} should be finite numbers")
    return array

"""Byte strings that lie in one text."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from eventveil.decoding.bulk import Packed, lengths_of, picked
from tests.fuzz.decoding import packed

VALUES = [b"a", None, b"", b"bcd" * 30, b"e"]


def test_they_are_what_was_packed() -> None:
    found = packed(VALUES, Random(1))
    assert [*found] == VALUES
    assert [found[row] for row in range(-5, 5)] == VALUES * 2
    assert [*found[1:4]] == VALUES[1:4]
    assert len(found) == 5
    with pytest.raises(IndexError):
        found[5]


def test_packed_or_not_they_have_the_same_lengths_and_are_picked_alike() -> None:
    for one in (VALUES, packed(VALUES, Random(1))):
        assert lengths_of(one).tolist() == [1, 0, 0, 90, 1]
        assert [*picked(one, np.array([3, 1, 0]))] == [VALUES[3], None, b"a"]


def test_there_may_be_none() -> None:
    nothing = np.zeros(0, np.int64)
    assert [*Packed(b"", nothing, nothing)] == []

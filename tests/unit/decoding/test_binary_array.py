"""Byte strings that lie in one text."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from eventveil.decoding.binary_array import Packed, chosen, in_one_text, lengths_of, without_none
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


def test_where_none_is_as_good_as_an_empty_string() -> None:
    texts = [value or b"" for value in VALUES]
    for one in (VALUES, texts, packed(VALUES, Random(1))):
        found = without_none(one)
        assert chosen(found) == texts
        assert chosen(found, np.array([3, 0])) == [texts[3], b"a"]
        assert lengths_of(found).tolist() == [1, 0, 0, 90, 1]


def test_in_one_text_nothing_but_line_feeds_is_between_them() -> None:
    for seed in range(60):
        found = packed(VALUES, Random(seed))
        data, starts = in_one_text(found, b"before", b"behind")
        for start, value in zip(starts.tolist(), VALUES, strict=True):
            assert data[start : start + len(value or b"")] == (value or b"")
        assert data.replace(b"\n", b"") == b"before" + b"".join(chosen(found)) + b"behind"
        assert data.startswith(b"before")
        assert (np.diff(starts) > lengths_of(found)[:-1]).all()


def test_one_of_them_and_none_are_a_text_too() -> None:
    for values in (VALUES[:1], VALUES[3:4]):
        data, (start,) = in_one_text(packed(values, Random(1)), b"<", b">")
        assert data[start : start + len(values[0] or b"")] == values[0]
    nothing = np.zeros(0, np.int64)
    assert [*Packed(b"", nothing, nothing)] == []

"""Which texts may be columns that are found in the data: a list of characters that never changes."""

from __future__ import annotations

import pytest

from eventveil.decoding.rules import Names

#: As docs/topology.md has them.
REFUSED = (
    (0x00, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160),
    (0x180E, 0x180E), (0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164),
    (0xD800, 0xDFFF), (0xFDD0, 0xFDEF), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF9, 0xFFFB),
    (0xFFFE, 0xFFFF), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip


def test_exactly_these_characters_are_refused() -> None:
    names = Names(3)
    looked_at = [*range(0x20000), *range(0x20000, 0x110000, 0x80)]
    refused = [code for code in looked_at if names.number(f"a{chr(code)}b") is None]
    assert refused == [code for code in looked_at if any(first <= code <= last for first, last in REFUSED)]


@pytest.mark.parametrize(
    "text",
    [
        "user\u202egnp.exe",
        "\u2066a",
        "b\u200f",
        "\u061c",
        "ad\u200bmin",
        "a\u200d",
        "\ufeffa",
        "a\u2028b",
        "a\x85",
    ],
    ids=ascii,
)
def test_what_looks_like_another_text_or_breaks_a_line_is_no_column(text: str) -> None:
    assert Names(100).number(text) is None


@pytest.mark.parametrize(
    "text",
    ["caf\u00e9", "\u6771\u4eac", "\u0645\u0635\u0631", "a b", "\u2764\ufe0f", "a|b", "other"],
    ids=ascii,
)
def test_texts_of_every_script_are_columns(text: str) -> None:
    assert Names(100).number(text) == 0


def test_the_length_is_in_characters() -> None:
    names = Names(2)
    assert [names.number(one) for one in ("", "\U0001f600\U0001f600", "abc", "a")] == [None, 0, None, 1]
    assert names.texts == ["\U0001f600\U0001f600", "a"]

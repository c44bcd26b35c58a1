"""Changing single settings of a topology and leaving the rest of the text alone."""

from __future__ import annotations

from eventveil.doctor.editing import Edits
from eventveil.topology.problems import Position

TEXT = """# ünïcode before
a:
  b: 1   # one
  c: {d: 2, e: 'three', f: 4}
g:
  h: [1, 2]
  i: "x"
"""


def test_a_value_is_replaced_and_its_comment_stays() -> None:
    edits = Edits(TEXT)
    edits.set(("a", "b"), "5")
    edits.set(("a", "c", "e"), "6")
    edits.set(("g", "i"), "y")
    assert edits.text == TEXT.replace("b: 1 ", "b: 5 ").replace("'three'", "6").replace('"x"', "y")


def test_a_setting_is_added_in_the_style_of_its_section() -> None:
    edits = Edits(TEXT)
    edits.set(("a", "new"), "7")
    edits.set(("a", "c", "z"), "8")
    assert edits.text == TEXT.replace("  b: 1", "  new: 7\n  b: 1").replace("{d", "{z: 8, d")


def test_a_setting_is_removed_wherever_it_stands() -> None:
    for path, before, after in (
        (("a", "b"), "  b: 1   # one\n", ""),
        (("a", "c", "d"), "d: 2, ", ""),
        (("a", "c", "f"), ", f: 4", ""),
        (("g", "i"), '  i: "x"\n', ""),
    ):
        edits = Edits(TEXT)
        edits.remove(path)
        assert edits.text == TEXT.replace(before, after)


def test_a_setting_that_is_left_out_is_at_the_section_around_it() -> None:
    edits = Edits(TEXT)
    assert edits.position(("a", "c", "e")) == Position(4, 13)
    assert edits.position(("g", "missing")) == Position(5, 1)

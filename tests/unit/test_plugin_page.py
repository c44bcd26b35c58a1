"""docs/plugins.md shows the example as it is tested, and every property of the suite."""

from __future__ import annotations

import re
from pathlib import Path

from eventveil.mechanisms.contract import PROPERTIES
from eventveil.mechanisms.plugins import GROUP

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "plugins.md").read_text(encoding="utf-8")


def test_the_example_of_the_page_is_the_one_that_is_tested() -> None:
    *_, shown = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert shown == (DOCS / "examples" / "stride.py").read_text(encoding="utf-8")


def test_the_page_lists_the_properties_in_their_order() -> None:
    table = PAGE[PAGE.index("| property |") : PAGE.index("**What it cannot show.**")]
    assert re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE) == [one.name for one in PROPERTIES]


def test_the_page_names_the_group_of_entry_points() -> None:
    assert f'[project.entry-points."{GROUP}"]' in PAGE

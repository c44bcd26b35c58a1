"""The pages of docs/mechanisms: their settings work, and say what they say of raw state."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from operators.mechanisms import KINDS
from tests.unit.topology.examples import ROOT, changed, load_text

#: The other pages are of mechanisms that no topology can name yet.
PAGES = [page for page in sorted((ROOT / "docs" / "mechanisms").glob("*.md")) if page.stem in KINDS]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_settings_of_a_page_are_valid_and_its_state_is_described(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    (example,) = re.findall(r"^```yaml\n(mechanism: .*)\n```$", text, re.MULTILINE)
    kind = KINDS[page.stem]
    columns = [("[ATL, BOS]", "[ATL]")] if kind.level == "user" else []
    mechanism = "mechanism:\n      kind: budget-absorption\n      epsilon: 1.0\n      window: 120"
    file = changed((mechanism, example), ("budget: {epsilon: 5, span: 5d}\n", ""), *columns)
    assert load_text(tmp_path, file).streams[0].mechanism.kind == page.stem
    assert ("**Its state is raw.**" in text) == bool(kind.raw)


def test_kinds_that_are_not_w_event_have_a_page() -> None:
    assert {kind for kind in KINDS if KINDS[kind].level != "w-event"} <= {page.stem for page in PAGES}


def test_kinds_with_raw_state_are_named_where_one_reads_who_may_see_what() -> None:
    text = (ROOT / "docs" / "privacy.md").read_text()
    limits = text[text.index("**State with true counts.**") :].split("\n")[0]
    assert {kind for kind in KINDS if f"`{kind}`" in limits} == {kind for kind in KINDS if KINDS[kind].raw}

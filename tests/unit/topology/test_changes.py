"""What docs/migrations.md says of every field is what the program does."""

from __future__ import annotations

import re
from pathlib import Path

from eventveil.topology.changes import REFUSED, SOUND, reason, remedy

DOCUMENT = (Path(__file__).parents[3] / "docs" / "migrations.md").read_text(encoding="utf-8")


def test_the_tables_of_the_documentation_are_those_of_the_program() -> None:
    rows = re.findall(r"^\| `([a-z_.]+)` \| (.+) \|$", DOCUMENT, re.MULTILINE)
    assert dict(rows) == {**SOUND, **REFUSED}


def test_a_field_that_nobody_has_thought_of_is_refused() -> None:
    assert reason("mechanism.unheard-of") == "it is not known what it would change"
    assert "new name" in remedy("mechanism.unheard-of")

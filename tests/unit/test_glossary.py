"""The glossary has the words that the other pages use, each once."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
GLOSSARY = (DOCS / "glossary.md").read_text(encoding="utf-8")
OTHERS = "\n".join(
    path.read_text(encoding="utf-8").lower().replace("_", " ")
    for path in DOCS.rglob("*.md")
    if path.name != "glossary.md"
)


def test_every_word_is_there_once_and_used_elsewhere() -> None:
    words = [
        word
        for cell in re.findall(r"^\| (\*\*.+?) \|", GLOSSARY, re.M)
        for word in re.findall(r"\*\*(.+?)\*\*", cell)
    ]
    assert len(words) == len(set(words)) > 40
    # As a verb most of them take an ending.
    assert [word for word in words if not re.search(rf"\b{word}", OTHERS)] == []


def test_each_is_explained_in_a_sentence_or_two() -> None:
    rows = re.findall(r"^\| \*\*.+\*\* \| (.+) \|$", GLOSSARY, re.M)
    assert len(rows) == GLOSSARY.count("\n| **")
    assert max(map(len, rows)) < 260

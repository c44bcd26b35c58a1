"""Words that no text of the project uses: a native engineer stumbles over them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORDS = re.compile(
    r"\b(whoever|for\s+ever|so\s+many|says\s+so|bury|buried|mend(s|ed|ing)?|neglect\w*)\b", re.I
)
TEXTS = {
    "operators": "**/*.py",
    "docs": "**/*.md",
    "schemas": "**/*.json",
    "topologies": "**/*.yaml",
    "docker": "**/*",
    "monitoring": "*",
    "tests": "**/*.py",
    "benchmarks": "**/*.py",
    ".": "*.md",
}


def test_no_text_uses_words_that_have_a_plain_one() -> None:
    texts = [
        path
        for folder, names in TEXTS.items()
        for path in (ROOT / folder).glob(names)
        if path.is_file() and path != Path(__file__)
    ]
    assert len(texts) > 600
    found = [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, one.start()) + 1}: {one.group()}"
        for path in texts
        if (text := path.read_text(encoding="utf-8"))
        for one in WORDS.finditer(text)
    ]
    assert found == []

"""Words that no text of the project uses: a native engineer stumbles over them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = re.compile(
    r"\b(whoever|for[\s_]+ever|so\s+many|says\s+so|bury|buried|mend(s|ed|ing)?|neglect\w*)\b", re.I
)
#: Sentences that are translated rather than written: "this is no error", "the errors hang together".
HABITS = re.compile(
    r"\b(for\s+want\s+of|hangs?\s+together|belongs?\s+into|goes\s+with\s+neither|by\s+what\s+is\s+public"
    r"|while\s+(the\s+)?others\s+go\s+on|what\s+there\s+is\s+of|is\s+started\s+again"
    r"|every\s+check\s+found|would\s+refuse\s+this|tells?\s+its\s+(end|id)"
    r"|state\s+remembers|\.\s+Who\s+(may|can|could)\b(?![^.?]*\?)"
    r"|(it|this)\s+is\s+no\s+(?!(longer|more|less|better|worse|larger|smaller|later|one|such|news)\b)\w+)",
    re.I,
)
#: Released schemas keep their text: a registry takes another text for another schema.
FROZEN = re.compile(r"release(-\d+)?\.(schema\.json|avsc)")
TEXTS = {
    "operators": "**/*.py",
    "operators/kernel/src": "*.rs",
    "deploy": "*",
    "examples": "**/*.*",
    "docs": "**/*.md",
    "schemas": "**/*.json",
    "topologies": "**/*.yaml",
    "docker": "**/*",
    "monitoring": "*",
    "tests": "**/*.py",
    "benchmarks": "**/*.py",
    ".": "[!.]*.*",
}


def texts() -> list[Path]:
    found = [
        path
        for folder, names in TEXTS.items()
        for path in (ROOT / folder).glob(names)
        if path.is_file() and path != Path(__file__)
    ]
    assert len(found) > 600
    return found


def uses(words: re.Pattern[str], paths: list[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, one.start()) + 1}: {one.group()}"
        for path in paths
        if (text := path.read_text(encoding="utf-8"))
        for one in words.finditer(text)
    ]


def test_no_text_uses_words_that_have_a_plain_one() -> None:
    assert uses(WORDS, texts()) == []


def test_no_text_uses_the_idioms_of_another_language() -> None:
    assert uses(HABITS, [path for path in texts() if not FROZEN.fullmatch(path.name)]) == []


@pytest.mark.parametrize(
    "text",
    [
        "it is no error",
        "this is no ledger\nentry",
        "noise that hangs together",
        "it is restarted while the others go on",
        "what state\nremembers",
        "Revoke the right. Who can read the topic finds it.",
    ],
)
def test_an_idiom_is_found(text: str) -> None:
    assert HABITS.search(text)


@pytest.mark.parametrize(
    "text",
    ["it is no longer held up", "there is no stream", "it is no later than that", "Listed. Who can read it?"],
)
def test_plain_english_is_not_taken_for_an_idiom(text: str) -> None:
    assert HABITS.search(text) is None

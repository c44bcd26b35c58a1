"""What to write instead of an unknown word."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """``did you mean`` the known word that is nearest to this one ``?``; empty if none is near."""
    near = difflib.get_close_matches(word[:100], sorted(known), 1, 0.65)
    return f"did you mean {near[0]}?" if near else ""


def suggestion(word: str, known: Collection[str]) -> str:
    """The remedy for an unknown word: the nearest known one, or all of them."""
    return nearest(word, known) or f"known: {', '.join(sorted(known)) or 'none'}"

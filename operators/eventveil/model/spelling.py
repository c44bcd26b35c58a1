"""What to write instead of an unknown word."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable


def meant(word: str, known: Iterable[str]) -> str | None:
    """The known word that is nearest to this one; None if none is near."""
    return next(iter(difflib.get_close_matches(word[:100], sorted(known), 1, 0.65)), None)


def nearest(word: str, known: Iterable[str]) -> str:
    """``did you mean`` the known word that is nearest to this one ``?``; empty if none is near."""
    near = meant(word, known)
    return f"did you mean {near}?" if near else ""


def suggestion(word: str, known: Collection[str]) -> str:
    """The remedy for an unknown word: the nearest known one, or all of them."""
    return remedy(meant(word, known), known)


def remedy(near: str | None, known: Collection[str]) -> str:
    """The same, of a word whose nearest known one, if any, was looked for already."""
    return f"did you mean {near}?" if near else f"known: {', '.join(sorted(known)) or 'none'}"

"""Words of reports: what records hold as text that a terminal can show, and shares."""

from __future__ import annotations

_LONGEST, _END = 200, 60


def shown_value(value: bytes | None) -> str:
    """Bytes of a record as text that a terminal can show: where it is long, the beginning and the end."""
    if not value:
        return "nothing" if value is None else "an empty value"
    if len(value) <= _LONGEST:
        return printable(value.decode("utf-8", "backslashreplace"))
    first, last = (
        part.decode("utf-8", "backslashreplace") for part in (value[: _LONGEST - _END], value[-_END:])
    )
    return f"{printable(first)} ... {printable(last)}"


def plain(text: str) -> str:
    """A text without characters that a terminal would obey, cut off."""
    return printable(text[:_LONGEST] + ("..." if len(text) > _LONGEST else ""))


def printable(text: str) -> str:
    """A text without characters that a terminal would obey."""
    return "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in text)


def share(part: int, whole: int) -> str:
    """Of how many something is a part, to stand behind its number."""
    return f" ({100 * part / whole:.3g} %)" if whole else ""

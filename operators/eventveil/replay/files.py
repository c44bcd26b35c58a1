"""Opening a file of events: lines of JSON, or rows of Parquet or Arrow."""

from __future__ import annotations

import os
import re
from collections.abc import Collection

from eventveil.model.errors import EventveilError
from eventveil.replay.inputs import ARROW_FILE, ARROW_STREAM, PARQUET, FileInput

#: How files begin that have no lines of JSON, what they are, and what makes lines of them.
_NO_LINES = {
    b"\x1f\x8b": ("packed by gzip", "gzip -dc"),
    b"\x28\xb5\x2f\xfd": ("packed by zstd", "zstd -dc"),
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), ("UTF-16 text", "iconv -f UTF-16 -t UTF-8")),
    b"[": ("one JSON array", "jq -c '.[]'"),
}
_LOOKED_AT = 4096
#: The first line of CSV: names, of which none looks like a number or a text of JSON alone.
_NAMES = re.compile(rb'"?[A-Za-z_][^,;\t"]*"?(?:[,;\t]"?[A-Za-z_][^,;\t"]*"?)+')


def open_file(path: str, pointers: Collection[str]) -> FileInput:
    """A file of lines, or of rows of which the columns that JSON ``pointers`` name are read.

    Its first bytes tell which; what is no regular file has lines. Raises OSError if it cannot be opened,
    ValueError if it has neither lines nor rows, EventveilError if it has rows that cannot be read.
    """
    beginning = b""
    if os.path.isfile(path):
        with open(path, "rb") as file:
            beginning = file.read(_LOOKED_AT)
    if beginning[:4] not in {PARQUET, ARROW_FILE, ARROW_STREAM}:
        _check_lines(path, beginning, pointers)
        return FileInput(path)
    try:
        from eventveil.replay.tables import TableInput
    except ImportError:
        raise EventveilError(
            f"{path} is a Parquet or Arrow file, and pyarrow, which reads these, is missing; "
            "install Eventveil with its extra arrow (pip install '.[arrow]'), or pip install pyarrow"
        ) from None
    return TableInput(path, pointers)


def _check_lines(path: str, beginning: bytes, pointers: Collection[str]) -> None:
    """Raises ValueError, with the remedy, for a file that has no lines of events."""
    text = beginning.removeprefix(b"\xef\xbb\xbf").lstrip()
    for start, (what, command) in _NO_LINES.items():
        # An event may be an array, if pointers lead into it: /0.
        if text.startswith(start) and not (start == b"[" and any(one[1:2].isdigit() for one in pointers)):
            raise ValueError(
                f"{path} is {what}, not an event per line: {command} {path} | eventveil replay ... "
                "--input /dev/stdin"
            )
    if _is_csv(path, text):
        raise ValueError(f"{path} looks like CSV; use JSON lines, Parquet or Arrow")


def _is_csv(path: str, text: bytes) -> bool:
    """Whether a file begins with names instead of an event, or is called CSV and has no event there."""
    first, _, rest = text.partition(b"\n")
    if not first or first.startswith((b"{", b"[")) or rest.lstrip().startswith((b"{", b"[")):
        return False
    return path.lower().endswith((".csv", ".tsv")) or _NAMES.fullmatch(first.rstrip()) is not None

"""The two ways of reading values in bulk: by the compiled kernel, and in plain Python."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventveil.process import kernel

WAYS = ("plain", "kernel")
#: `make install` writes here why it could not build the kernel; nothing if it could.
_WITHOUT = Path(sys.prefix) / "kernel"


@contextmanager
def read_by(way: str) -> Iterator[None]:
    """Whatever reads in bulk and is made in the meantime does it in this way.

    Skips the test if the kernel could not be built, and fails it if nobody has tried.
    """
    if way == "kernel" and kernel.NATIVE is None:
        why = _WITHOUT.read_text() if _WITHOUT.exists() else ""
        if not why:
            pytest.fail(f"{kernel.WAY}; run make install")
        pytest.skip(why.strip())
    with pytest.MonkeyPatch.context() as patch:
        if way == "plain":
            patch.setattr(kernel, "NATIVE", None)
        yield

"""The hook by which a test can make a worker fail.

A worker calls its fault hook with the name of each step of the protocol. The product's own hook does nothing;
only a constructor argument can set another, which no flag, file or variable of the product does.
"""

from __future__ import annotations

from collections.abc import Callable

FaultHook = Callable[[str], None]


def no_fault(_: str) -> None:
    """The fault hook of a real worker."""

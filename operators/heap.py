"""Python's garbage collector, in a process through which records pass by the million."""

from __future__ import annotations

import gc

_YOUNG = 50_000


def settle() -> None:
    """Look no more through what is there now, and more seldom through what is new.

    Records, chunks and releases are in no cycles, so that reference counts free them. By default the
    collector would look for cycles after every 700 objects that stay for a moment.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])

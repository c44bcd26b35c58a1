"""Python's memory, in a process through which records pass by the million."""

from __future__ import annotations

import ctypes
import gc

_YOUNG = 50_000
#: Parameters of glibc's mallopt(3), and what they are set to, in bytes.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = (-1, 32 * 1024 * 1024), (-3, 16 * 1024 * 1024)


def settle() -> None:
    """Look no more through what is there now, and more seldom through what is new; keep freed memory.

    Records, chunks and releases are in no cycles, so that reference counts free them. By default the
    collector would look for cycles after every 700 objects that stay for a moment.

    A fetch is some megabytes, again and again. By default much of it would be given back to the system each
    time, and every page of the next one be asked for, and emptied, anew: a third of what reading costs.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:  # only glibc has it
        for parameter in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            set_option(*parameter)

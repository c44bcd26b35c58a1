"""The compiled kernel, ``eventveil_kernel`` (operators/kernel), where it is installed.

Without it everything is read by the plain path, with the same results. ``EVENTVEIL_KERNEL=off`` chooses the
plain path where the kernel is installed.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

#: The interface of the kernel that this program was written for.
_INTERFACE = 12
#: The variable of the environment that switches the kernel off.
SWITCH = "EVENTVEIL_KERNEL"


def _load() -> tuple[Any, str]:
    """The kernel, or None, and which way events are read, in words."""
    switch = os.environ.get(SWITCH, "on")
    if switch == "off":
        return None, f"events are read in plain Python because {SWITCH} is off"
    try:
        found = import_module("eventveil_kernel")
    except ModuleNotFoundError:
        return None, "events are read in plain Python, at four to eight times the cost (docs/deploy.md)"
    except ImportError as error:
        return None, f"events are read in plain Python because eventveil-kernel cannot be loaded: {error}"
    if found.INTERFACE != _INTERFACE:
        return None, (
            f"events are read in plain Python because eventveil-kernel has interface {found.INTERFACE} and"
            f" not {_INTERFACE}; install the one that comes with this version"
        )
    return found, "events are read by the compiled kernel"


#: The kernel, or None. Tests put None here.
NATIVE: Any
NATIVE, WAY = _load()

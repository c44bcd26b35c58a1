"""A limit on the memory of a process: it stops as a whole and says why, before the kernel ends it.

What a worker holds in memory it can read again, so that stopping loses nothing. Leaving out events instead,
or forgetting users, would make whether an event counts depend on those of others.
"""

from __future__ import annotations

import os
import re
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from eventveil.model.errors import EventveilError

#: Of the memory there is, the part that a process may fill by default. The rest is for what comes between two
#: looks at it (chunks on their way, tables that are rebuilt at twice their size), for buffers of the kernel
#: that count as the process's in a control group, and for others on the same machine.
DEFAULT_SHARE = (3, 4)

_PAGE = os.sysconf("SC_PAGE_SIZE")
_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_FEW = 1_000


@dataclass(frozen=True, slots=True)
class Held:
    """What is held in memory of a stream: raw data. ``str`` of it is fit for a log.

    ``contributions`` are pairs of user and open timestamp, ``users`` those that are remembered, whether in an
    open timestamp or not, ``partials`` the counts of partitions that wait for those of others.
    """

    timestamps: int = 0
    contributions: int = 0
    users: int = 0
    partials: int = 0

    def __add__(self, other: Held) -> Held:
        return Held(
            self.timestamps + other.timestamps,
            self.contributions + other.contributions,
            self.users + other.users,
            self.partials + other.partials,
        )

    def __str__(self) -> str:
        """In words, to a power of ten: a message is no place for exact counts."""
        named = {
            "open timestamps": self.timestamps,
            "open contributions": self.contributions,
            "distinct users": self.users,
            "waiting partial counts": self.partials,
        }
        return ", ".join(f"{_magnitude(number)} {name}" for name, number in named.items())


#: What is held before anything is.
NOTHING = Held()


def _magnitude(number: int) -> str:
    return f"fewer than {_FEW:,}" if number < _FEW else f"{10 ** (len(str(number)) - 1):,} or more"


class MemoryLimitReached(EventveilError):
    """The process holds as much as it may. Nothing that was committed is affected."""

    def __init__(self, limit: int, held: Mapping[str, Held], remedy: str) -> None:
        found = "; ".join(f"{stream}: {what}" for stream, what in held.items()) or "no stream yet"
        super().__init__(
            f"the memory limit of {format_size(limit)} (--memory-limit) is reached. Held: {found}. "
            f"Nothing is lost. {remedy}"
        )


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """``size`` in bytes of resident memory, None for no limit; ``remedy`` is what the error recommends."""

    size: int | None
    remedy: str

    def check(self, held: Callable[[], Mapping[str, Held]], elsewhere: int = 0) -> int:
        """Bytes of resident memory, and those ``elsewhere``, in processes of this one's own.

        From ``size`` on raises MemoryLimitReached with what is ``held``.
        """
        found = resident() + elsewhere
        if self.size is not None and found >= self.size:
            raise MemoryLimitReached(self.size, held(), self.remedy)
        return found


def resident() -> int:
    """The resident memory of this process in bytes; where the system does not tell, the most it ever was."""
    try:
        return int(os.pread(_statm(os.getpid()), 256, 0).split()[1]) * _PAGE
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


@cache
def _statm(pid: int) -> int:
    """A descriptor that stays open: at twenty readings a second, opening it would cost most of the time."""
    return os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)


def default_limit() -> int:
    """DEFAULT_SHARE of the memory that this process can have, in bytes."""
    part, whole = DEFAULT_SHARE
    return available() * part // whole


def available(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes of memory that there are for this process: in the machine, or by a limit of a control group."""
    physical = _PAGE * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *_group_limits(proc, groups)])


def _group_limits(proc: Path, groups: Path) -> Iterator[int]:
    """The limits of the control groups, of version 1 or 2, that this process is in and of those around them.

    A container may be told its path on the host, and see its own group as the root.
    """
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    files: tuple[Path, tuple[str, ...]]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            files = groups, ("memory.max", "memory.high")
        elif "memory" in controllers.split(","):
            files = groups / "memory", ("memory.limit_in_bytes",)
        else:
            continue
        root, names = files
        inner = PurePosixPath(path.lstrip("/"))
        for group in (inner, *inner.parents):
            for name in names:
                yield from _limit_in(root / group / name)


def _limit_in(file: Path) -> Iterator[int]:
    try:
        yield int(file.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return


def parse_size(text: str) -> int:
    """Bytes of a size such as 4GiB or 1.5GiB. Raises ValueError for anything else and for none at all."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)\s?([KMGT]iB|)", text, re.ASCII)
    size = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if size < 1:
        raise ValueError("should be a size, such as 4GiB or 512MiB")
    return size


def format_size(size: int) -> str:
    """A size in the largest unit that leaves at least 1, rounded to a tenth."""
    unit = next((name for name in ("TiB", "GiB", "MiB", "KiB") if size >= _UNITS[name]), "")
    return f"{size / _UNITS[unit]:.1f}".removesuffix(".0") + f" {unit or 'bytes'}"

"""The memory limit: where its default comes from, how it is written, what its error tells and what not."""

from __future__ import annotations

import os
import re
from mmap import mmap
from pathlib import Path

import numpy as np
import pytest

from eventveil.process import memory
from eventveil.process.memory import (
    NOTHING,
    Held,
    MemoryLimit,
    MemoryLimitReached,
    available,
    default_limit,
    format_size,
    parse_size,
    resident,
)

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
UNLIMITED = "9223372036854771712\n"
#: What a process reads of its groups, the files of the groups, and what it may have.
GROUPS = {
    "version 2": ("0::/app/worker\n", {"app/worker/memory.max": "4096\n"}, 4096),
    "version 2, no limit of its own": (
        "0::/app/worker\n",
        {"app/worker/memory.max": "max\n", "app/memory.max": "8192\n"},
        8192,
    ),
    "version 2, throttled from": ("0::/a\n", {"a/memory.max": "8192\n", "a/memory.high": "5000\n"}, 5000),
    "version 2, in a container": ("0::/\n", {"memory.max": "4096\n"}, 4096),
    "version 1": (
        "5:cpu,cpuacct:/x\n4:memory:/x\n0::/\n",
        {"memory/x/memory.limit_in_bytes": "4096\n", "memory/memory.limit_in_bytes": UNLIMITED},
        4096,
    ),
    "version 1, in a container": (
        "4:memory:/docker/of-the-host\n",
        {"memory/memory.limit_in_bytes": "4096\n"},
        4096,
    ),
    "unlimited": ("4:memory:/x\n", {"memory/x/memory.limit_in_bytes": UNLIMITED}, PHYSICAL),
    "another controller": ("5:cpu:/x\n", {"cpu/x/memory.limit_in_bytes": "4096\n"}, PHYSICAL),
    "no groups": (None, {}, PHYSICAL),
}


@pytest.mark.parametrize("case", GROUPS)
def test_what_is_available_is_the_least_of_the_machine_and_the_control_groups(
    tmp_path: Path, case: str
) -> None:
    listing, files, expected = GROUPS[case]
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    for name, text in files.items():
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(text)
    if listing is not None:
        (proc / "self").mkdir(parents=True)
        (proc / "self" / "cgroup").write_text(listing)
    assert available(proc, groups) == expected


def test_by_default_a_process_may_fill_three_quarters_of_what_is_available() -> None:
    assert default_limit() == available() * 3 // 4


def test_a_child_asks_for_its_own_memory() -> None:
    held = np.ones(64 << 20, np.uint8)
    mine, (ours, theirs) = resident(), os.pipe()
    if (child := os.fork()) == 0:
        held.resize(0, refcheck=False)
        os.write(theirs, b"%d" % resident())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(ours, 100)) < mine - (32 << 20)


def test_resident_memory_follows_what_is_held() -> None:
    # Not from malloc: it may have as much that others have freed, which is resident already.
    held, before = mmap(-1, 64 * 2**20), resident()
    np.frombuffer(held, np.uint8)[:] = 1
    assert resident() - before > 0.9 * len(held)


def test_where_the_system_does_not_tell_the_peak_stands_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = resident()
    monkeypatch.setattr(memory, "open", _no_such_file, raising=False)
    assert resident() >= 0.9 * now


def _no_such_file(*_: object) -> None:
    raise FileNotFoundError


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("512MiB", 512 * 2**20), ("1.5 GiB", 3 * 2**29), ("2TiB", 2**41), ("8KiB", 8192)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "0.5", "4GB", "4G", "-1GiB", "1e3", "٣GiB", "GiB", "4 GiB or so"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="should be a size, such as 4GiB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [(1, "1 bytes"), (1536, "1.5 KiB"), (2**29, "512 MiB"), (3 * 2**40, "3 TiB"), (12_884_901_888, "12 GiB")],
)
def test_sizes_are_told_in_the_largest_unit(size: int, text: str) -> None:
    assert format_size(size) == text


def test_below_the_limit_and_without_one_nothing_is_asked() -> None:
    MemoryLimit(None, "").check(_unasked)
    assert MemoryLimit(2 * resident(), "").check(_unasked) > 0


def _unasked() -> dict[str, Held]:
    raise AssertionError


def test_the_error_names_the_limit_the_remedy_and_of_each_stream_what_is_held() -> None:
    held = {"views": Held(12, 3_456_789, 98_765, 0), "buys": NOTHING}
    with pytest.raises(MemoryLimitReached) as caught:
        MemoryLimit(2**20, "Raise it").check(lambda: held)
    told = str(caught.value)
    assert "the memory limit of 1 MiB (--memory-limit) is reached" in told
    assert "views: fewer than 1,000 open timestamps, 1,000,000 or more open contributions" in told
    assert "10,000 or more distinct users, fewer than 1,000 waiting partial counts; buys: " in told
    assert told.endswith("Raise it")


def test_a_message_tells_no_exact_count() -> None:
    def told(held: Held) -> str:
        return str(MemoryLimitReached(2**20, {"views": held}, ""))

    assert told(Held(1, 2_000, 30_000, 4)) == told(Held(999, 9_999, 99_999, 0))
    assert {
        re.sub("0|,", "", number) for number in re.findall(r"[\d,]*\d", str(Held(7, 1234, 56789, 10**9)))
    } == {"1"}


def test_what_is_held_adds_up() -> None:
    assert sum([Held(1, 2, 3, 4), Held(10, 20, 30, 40)], NOTHING) == Held(11, 22, 33, 44)

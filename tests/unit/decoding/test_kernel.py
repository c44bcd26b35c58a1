"""The compiled kernel refuses what it cannot have been given, and without it everything goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from eventveil.decoding import kernel
from tests.fuzz.ways import read_by


@pytest.fixture
def native() -> Iterator[Any]:
    with read_by("kernel"):
        yield kernel.NATIVE


def test_parts_outside_of_their_text_are_refused(native: Any) -> None:
    reader = native.Reader([(["user"], "string")], 100)
    nothing, behind = np.array([0]), np.array([3])
    assert reader.read_parts(b"{}", nothing, np.array([2]))[0] == b""
    for starts, lengths in ((nothing, behind), (behind, nothing), (nothing, nothing - 2), (behind, behind)):
        with pytest.raises(ValueError, match="outside"):
            reader.read_parts(b"{}", starts, lengths)


def test_what_is_no_list_of_bytes_is_refused(native: Any) -> None:
    reader = native.Reader([(["user"], "string")], 100)
    for values in ([bytearray(b"{}")], ["{}"], (b"{}",)):
        with pytest.raises(TypeError):
            reader.read(values)


def test_places_beyond_a_column_are_refused(native: Any) -> None:
    _, (users,) = native.Reader([(["user"], "string")], 100).read([b'{"user":"u"}'])
    assert users.at(np.array([0])) == ["u"]
    for place in (-1, 1, 2**62):
        for of_places in (users.at, users.canonical):
            with pytest.raises(IndexError, match="1 values"):
                of_places(np.array([place]))


def test_flags_of_another_number_forget_nobody(native: Any) -> None:
    numbers = native.Numbers(1)
    numbers.of(["a", "b"])
    with pytest.raises(ValueError, match="1 flags for 2"):
        numbers.keep(b"\1")
    assert len(numbers) == 2


def test_a_kernel_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "eventveil_kernel", SimpleNamespace(INTERFACE=0))
    found, way = kernel._load()
    assert found is None
    assert "interface 0" in way


def test_without_a_kernel_or_with_it_switched_off_a_line_tells_the_way() -> None:
    program = (
        "import sys; sys.modules['eventveil_kernel'] = None\n"
        "from eventveil.decoding import kernel; print(kernel.NATIVE, kernel.WAY)"
    )
    for switch, told in (("on", "more than twice the cost"), ("off", "EVENTVEIL_KERNEL is off")):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={"EVENTVEIL_KERNEL": switch}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.startswith("None events are read in plain Python")
        assert told in done.stdout

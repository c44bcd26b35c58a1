"""The compiled kernel refuses what it cannot have been given, and without it everything goes on."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from eventveil.decoding.bulk import as_array
from eventveil.process import kernel
from tests.fuzz.ways import read_by


@pytest.fixture
def native() -> Iterator[Any]:
    with read_by("kernel"):
        yield kernel.NATIVE


def test_parts_outside_of_their_text_are_refused(native: Any) -> None:
    reader = native.Reader([(["user"], "string")], 100)
    nothing, behind = np.array([0]), np.array([3])
    assert reader.read((b"{}", nothing, np.array([2])))[0] == b""
    for starts, lengths in ((nothing, behind), (behind, nothing), (nothing, nothing - 2), (behind, behind)):
        with pytest.raises(ValueError, match="outside"):
            reader.read((b"{}", starts, lengths))


def test_what_is_no_list_of_bytes_is_refused(native: Any) -> None:
    reader = native.Reader([(["user"], "string")], 100)
    for values in ([bytearray(b"{}")], ["{}"], (b"{}",), b"{}"):
        with pytest.raises(TypeError):
            reader.read(values)


def test_places_beyond_a_column_are_refused(native: Any) -> None:
    _, _, (users,) = native.Reader([(["user"], "string")], 100).read([b'{"user":"u"}'])
    assert users.at(np.array([0])) == ["u"]
    for place in (-1, 1, 2**62):
        for of_places in (users.at, users.canonical):
            with pytest.raises(IndexError, match="1 values"):
                of_places(np.array([place]))


def test_flags_of_another_number_forget_nobody(native: Any) -> None:
    numbers = native.Numbers(1)
    numbers.of(["a", "b"])
    users = native.Users("murmur2", 1, 0)
    users.of(["a", "b"])
    for known in (numbers, users):
        with pytest.raises(ValueError, match="1 flags for 2"):
            known.keep(b"\1")
        assert len(known) == 2


def test_meanings_of_another_number_are_refused(native: Any) -> None:
    numbers = native.Numbers(0)
    numbers.of(["a", "b"])
    found = numbers.translate(["b", "c", "a"], np.array([5, 6, 7]))
    assert as_array(found).tolist() == [6, 7, 5]
    for meanings in ([], [5, 6], [5, 6, 7, 8]):
        with pytest.raises(ValueError, match="meanings of 2"):
            numbers.translate(["a"], np.array(meanings, np.int64))


def test_numbers_that_nobody_has_are_refused(native: Any) -> None:
    users, contributions = native.Users("crc32", 2, 0), native.Contributions(1)
    for number in (-1, 2**32 - 1, 2**40):
        with pytest.raises(IndexError, match="nobody"):
            users.belong(np.array([number]))
        with pytest.raises(OverflowError, match="no user"):
            contributions.admit(np.array([5, number]))
    assert len(contributions) == 0
    contributions.admit(np.array([5]))
    for new in ([0] * 5, [-1] * 6, [2**32] * 6):
        with pytest.raises(IndexError, match="no new number"):
            contributions.renumber(np.array(new))
    assert np.frombuffer(contributions.users(), np.int64).tolist() == [5]
    with pytest.raises(ValueError, match="no partition"):
        native.Users("crc32", 0, 0)


def test_checksums_are_those_of_the_standard(native: Any) -> None:
    # RFC 3720, B.4.
    assert native.checksum(b"\0" * 32, 0, 32) == 0x8A9136AA
    assert native.checksum(b"..123456789.", 2, 11) == 0xE3069283
    for begin, end in ((0, 4), (2, 1)):
        with pytest.raises(ValueError, match="outside"):
            native.checksum(b"abc", begin, end)


def test_of_gzip_comes_all_or_nothing(native: Any) -> None:
    text = b"some text" * 1000
    packed = gzip.compress(text)
    assert native.gunzip(packed, len(text)) == text
    # Of several members all, and of what is too large or damaged nothing.
    assert native.gunzip(packed + gzip.compress(b"!"), 10**6) == text + b"!"
    assert native.gunzip(packed, len(text) - 1) is None
    for damaged in (packed[:-1], packed[:-9], b"", packed[:40] + b"\xff" + packed[41:], packed + b"x"):
        assert native.gunzip(damaged, 10**6) is None


def test_events_of_another_chunk_are_not_placed(native: Any) -> None:
    placer, users = native.Placer((0, 1000, 0, 0), False, 1, 1), native.Users("crc32", 1, 0)
    one, two = np.array([1]), np.array([0, 1])
    down = np.array([1, 0])
    for fields, chunk in (
        ((one, one, one, two), two),
        ((one,) * 4, one),
        ((-one,) * 4, two),
        ((down,) * 4, two),
    ):
        with pytest.raises(IndexError, match="not those of the chunk"):
            placer.place(users, fields, (chunk, None), (0, 1))
    with pytest.raises(ValueError, match="boundaries"):
        placer.place(users, (one, one, one, one), (two, (one, two)), (0, 1))
    # Who has no number is no user, and what is beyond 64 bits is for the rule.
    assert placer.place(users, (one, one, one, one), (two, None), (0, 1)).bytes() == [b""] * 4
    users.of(["u"])
    far = native.Placer((-(2**62), 1, 2**62, 2**62), False, 1, 1)
    assert far.place(users, (one, one, one, one), (np.array([0, 2**62]), None), (0, 1)).bytes() == [b""] * 4


def test_a_kernel_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "eventveil_kernel", SimpleNamespace(INTERFACE=0))
    found, way = kernel._load()
    assert found is None
    assert "interface 0" in way


def test_without_a_kernel_or_with_it_switched_off_a_line_tells_the_way() -> None:
    program = (
        "import sys; sys.modules['eventveil_kernel'] = None\n"
        "from eventveil.process import kernel; print(kernel.NATIVE, kernel.WAY)"
    )
    for switch, told in (("on", "four to eight times the cost"), ("off", "EVENTVEIL_KERNEL is off")):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={"EVENTVEIL_KERNEL": switch}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.startswith("None events are read in plain Python")
        assert told in done.stdout

"""Measurements that need no Kafka still run, and all count right. No time is judged."""

from __future__ import annotations

import sys

import pytest

from benchmarks.throughput import fetches, growth, ingest, memory, noise, steps

FEW = ["--events", "1000", "--users", "100", "--rounds", "1"]


@pytest.mark.parametrize("codec", fetches._CODECS)
def test_whole_fetches(
    codec: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends with an error if the kernel, plain Python and A's loop differ."""
    monkeypatch.setattr(sys, "argv", ["fetches", *FEW, "--records", "200", "--codec", codec])
    fetches.main()
    shown = capsys.readouterr().out
    assert all(f"| {kind} | in plain Python | " in shown for kind in fetches.KINDS)


def test_decoding_and_counting(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As above, for chunks."""
    monkeypatch.setattr(sys, "argv", ["ingest", *FEW, "--chunk", "100", "--rekeyed"])
    ingest.main()
    assert "the counts agree" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("module", "options", "last"),
    [
        (growth, ["--events", "10000"], "| Zipf | 256 |"),
        (memory, ["--users", "1000", "--timestamps", "2"], "bytes for each further contribution"),
        (noise, ["--repetitions", "1"], "| 2^30 |"),
        (steps, ["--columns", "20", "--timestamps", "48"], "| uniform |"),
    ],
)
def test_tables(
    module: object,
    options: list[str],
    last: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["measured", *options])
    module.main()  # type: ignore[attr-defined]
    assert last in capsys.readouterr().out.splitlines()[-1]

"""Long commands show how far they are."""

import pytest

from eventveil.cli import progress


def test_without_a_terminal_a_line_tells_how_far_it_is_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress.progress("reading (bytes)", lambda: "7 released") as told:
        for second in range(70):
            now = float(second)
            told(1000 * second, 0 if second < 40 else 90_000)
    assert capsys.readouterr().err.splitlines() == [
        "reading (bytes): 30,000, 7 released",
        "reading (bytes): 60,000 of 90,000, 7 released",
    ]

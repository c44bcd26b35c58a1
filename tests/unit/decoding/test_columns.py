"""Fields that were read of many events."""

from __future__ import annotations

import pytest

from eventveil.decoding import columns
from eventveil.model.timeline import parse_rfc3339


def test_neither_many_nor_long_parts_of_times_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_REMEMBERED", 10)
    texts = [f"2000-01-01T00:00:00.{number}Z" for number in range(99)]
    long = f"2000-01-01T00:00:00.{'1' * 100}Z"
    assert columns.times_of([*texts, long]).tolist() == [parse_rfc3339(text) for text in (*texts, long)]
    assert len(columns._SECONDS) <= 10
    assert max(map(len, columns._SECONDS)) < 50

"""The example in Flink SQL has what `tests/integration/test_flink.py` replaces in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker import flink

ADAPTED = {
    "bootstrap": "broker:19092",
    "events": "app.events",
    "counts": "app.counts",
    "checkpoints": Path("/a/folder"),
    "prefix": "app",
}


def test_all_of_the_example_that_belongs_to_a_cluster_is_replaced() -> None:
    example = (flink.EXAMPLE / "unique-users.sql").read_text(encoding="utf-8")
    text = flink.adapted(**ADAPTED, seconds=2)
    changed = [line for line in text.splitlines() if line not in example.splitlines()]
    assert [line.strip().rstrip(",") for line in changed] == [
        "SET 'execution.checkpointing.interval' = '1 s';",
        "SET 'execution.checkpointing.dir' = 'file:///a/folder';",
        "'topic' = 'app.events'",
        "'properties.bootstrap.servers' = 'broker:19092'",
        "'topic' = 'app.counts'",
        "'properties.bootstrap.servers' = 'broker:19092'",
        "'sink.transactional-id-prefix' = 'app'",
        "FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(appended), INTERVAL '2' SECOND))",
    ]


def test_an_example_without_something_that_is_to_be_replaced_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = (flink.EXAMPLE / "unique-users.sql").read_text(encoding="utf-8")
    (tmp_path / "unique-users.sql").write_text(example.replace("engine.counts", "counts"), encoding="utf-8")
    monkeypatch.setattr(flink, "EXAMPLE", tmp_path)
    with pytest.raises(ValueError, match=r"has no 'engine\.counts'"):
        flink.adapted(**ADAPTED, seconds=2)

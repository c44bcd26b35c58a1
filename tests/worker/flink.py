"""The example's job in Flink SQL, for the topics of a test."""

from __future__ import annotations

from pathlib import Path

from tests.worker.process import ROOT

EXAMPLE = ROOT / "examples" / "flink"


def adapted(*, bootstrap: str, events: str, counts: str, checkpoints: Path, prefix: str, seconds: int) -> str:
    """The statements of ``unique-users.sql`` for other topics and windows, with a checkpoint each second.

    ``prefix`` is of its transactional ids, ``seconds`` the length of a window. Raises ValueError if the file
    does not have what is to be replaced.
    """
    text = (EXAMPLE / "unique-users.sql").read_text(encoding="utf-8")
    changes = {
        "'10 s'": "'1 s'",
        "file:///var/flink/checkpoints": f"file://{checkpoints}",
        "'localhost:9092'": f"'{bootstrap}'",
        "'shop.events'": f"'{events}'",
        "'engine.counts'": f"'{counts}'",
        "'sink.transactional-id-prefix' = 'unique-users'": f"'sink.transactional-id-prefix' = '{prefix}'",
        "INTERVAL '1' HOUR": f"INTERVAL '{seconds}' SECOND",
    }
    for old, new in changes.items():
        if old not in text:
            raise ValueError(f"unique-users.sql has no {old}")
        text = text.replace(old, new)
    return text

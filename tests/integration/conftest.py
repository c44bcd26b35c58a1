"""Fixtures of the tests against a real broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from eventveil.cli import migrate
from tests.kafka.topics import create_topic, unique
from tests.worker.application import Application

NewTopic = Callable[..., str]


@pytest.fixture
def new_topic(kafka: str) -> NewTopic:
    """Make a topic with a name of its own: ``new_topic("ledger", partitions=2, settings={...})``."""

    def make(label: str = "topic", partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
        return create_topic(kafka, unique(label), partitions, settings)

    return make


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands look at a doubt for a moment only: in the tests' clusters it mostly stays."""
    monkeypatch.setattr(migrate, "PATIENCE_SECONDS", 0.0)


@pytest.fixture
def application(kafka: str, tmp_path: Path) -> Application:
    """An application with its topics and genesis."""
    made = Application(kafka, tmp_path)
    made.create()
    return made

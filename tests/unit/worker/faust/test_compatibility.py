"""The private members of Faust and aiokafka that the worker leans on."""

from __future__ import annotations

from importlib.metadata import requires, version

import aiokafka
import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from faust.transport.consumer import Consumer

from eventveil.model.errors import EventveilError
from eventveil.worker.faust import compatibility
from eventveil.worker.faust.compatibility import check_private_members


def test_the_pinned_versions_are_installed_and_have_every_member() -> None:
    pins = [pin for pin in requires("eventveil") or [] if "==" in pin and "extra" not in pin]
    assert {pin.split("==")[0].split("[")[0] for pin in pins} == {"aiokafka", "faust-streaming"}
    for pin in pins:
        name, pinned = pin.split("==")
        assert version(name.split("[")[0]) == pinned
    check_private_members()


def test_a_missing_member_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Consumer, "_drain_messages")
    with pytest.raises(EventveilError, match=r"Consumer\._drain_messages not found; install the versions"):
        check_private_members()


def test_what_a_function_has_to_use_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compatibility._NAMES, AIOKafkaConnection.connect, ("_protocol", "_gone"))
    with pytest.raises(
        EventveilError, match=r": aiokafka\.conn\.AIOKafkaConnection\.connect with _gone not f"
    ):
        check_private_members()


def test_another_aiokafka_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiokafka, "__version__", "9.9.9")
    with pytest.raises(EventveilError, match=r"not supported: aiokafka 0\.14\.0 not found; install"):
        check_private_members()


def test_metadata_that_are_asked_for_in_another_way_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a worker would silently create the topics that somebody has deleted."""
    monkeypatch.setattr(AIOKafkaClient, "_metadata_update", lambda client, cluster, topics: None)
    with pytest.raises(EventveilError, match=r"MetadataRequest in AIOKafkaClient\._metadata_update"):
        check_private_members()

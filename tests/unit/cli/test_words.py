"""What keeps a command from the brokers is told by every command alike, in words, with Kafka's name."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException

from eventveil.cli.main import COMMANDS, main
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.rights import with_right
from eventveil.model.errors import EventveilError
from eventveil.topology.changes import MIGRATE_LOST
from tests.unit.doctor.making import FILE

ROOT = Path(__file__).parents[3]
FLIGHTS, ANNOUNCED = (
    str(ROOT / "topologies" / "flights.yaml"),
    str(Path(__file__).parent / "shipped" / "every-kind.yaml"),
)
TOPIC = ("--input", "topic:flights.events")
#: By command, what it is given beside its topology, if anything.
CALLS: dict[str, tuple[str, ...]] = {
    "advise": (FLIGHTS, *TOPIC),
    "announce": (ANNOUNCED, "--stream", "doors"),
    "dead": (FLIGHTS,),
    "doctor": (FLIGHTS,),
    "export": (FLIGHTS, "--output", "-", "--format", "csv"),
    "ledger": (FLIGHTS,),
    "migrate": (FLIGHTS,),
    "replay": (FLIGHTS, *TOPIC, "--to", "last", "--output", "-"),
    "report": (FLIGHTS, "--json"),
    "reset": (FLIGHTS, "--stream", "destinations"),
    "status": (FLIGHTS,),
    "tail": (FLIGHTS,),
    "topics": (FLIGHTS,),
}
#: ``run`` ends its process; tests/integration/test_rights.py reads its log.
WITHOUT_BROKERS = {"check", "generate", "mechanisms", "metrics", "schema", "test"}


def refuse(*_: object) -> NoReturn:
    raise with_right(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), "Read", "topic shop")


def test_every_command_that_asks_brokers_is_here() -> None:
    assert COMMANDS.keys() == {*CALLS, *WITHOUT_BROKERS, "run"}


@pytest.mark.parametrize("name", CALLS)
def test_a_right_that_is_missing_is_told_in_words(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "__init__", refuse)
    found = CliRunner().invoke(main, [name, *CALLS[name]])
    assert found.exit_code == 1, found.output
    assert "KafkaError{" not in found.stderr
    assert found.stderr.startswith(
        f"eventveil {name}: topic shop: Broker: Topic authorization failed: the user"
    )
    assert "no right to Read there. Grant it by an ACL" in found.stderr
    assert "(TOPIC_AUTHORIZATION_FAILED)" in found.stderr


@pytest.mark.parametrize("folder", ["shop", "our shop"])
@pytest.mark.parametrize("name", ["migrate", "status", "tail", "topics"])
def test_commands_that_are_advised_have_the_path_of_the_file(
    name: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> NoReturn:
        raise EventveilError(f"of TOPOLOGY records are gone. {MIGRATE_LOST}")

    monkeypatch.setattr(Cluster, "__init__", lost)
    path = tmp_path / folder / "shop.yaml"
    path.parent.mkdir()
    path.write_text(FILE)
    found = CliRunner().invoke(main, [name, str(path)])
    assert found.exit_code == 1, found.output
    written = f"'{path}'" if " " in folder else str(path)
    assert f"of TOPOLOGY records are gone. Stop the workers and run `eventveil migrate {written} --lost " in (
        found.stderr
    )


def test_help_has_the_word_for_the_file() -> None:
    assert " of TOPOLOGY" in CliRunner().invoke(main, ["topics", "--help"]).stdout

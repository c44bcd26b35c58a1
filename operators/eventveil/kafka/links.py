"""Connections to the brokers that cost nothing at rest: no thread, no timer, no loop that wakes up.

A link is a connection to each broker that was asked something through it, and one thread at a time has it.
Threads share as many links as there were threads at once that asked. Each has one of its own, because a
broker takes the requests of a connection one by one, and a write that waits for replicas would hold up
everybody else's. Nothing is retried here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from aiokafka.conn import collect_hosts
from aiokafka.protocol.metadata import MetadataRequest
from confluent_kafka import KafkaError

from eventveil.kafka.connection import Address, Connection, Unanswered, Unreached, client_id
from eventveil.kafka.rights import refusal
from eventveil.kafka.settings import aiokafka as aiokafka_settings
from eventveil.kafka.throttling import Throttling
from eventveil.model.errors import EventveilError
from eventveil.model.topology import Kafka

#: Of a question that any broker can answer: then the next one is asked.
_ANY_SECONDS = 5.0
#: After which leaders are asked for again, as other clients do; a broker that is none says it at once.
_LAYOUT_SECONDS = 300.0
#: What a broker may say right after a topic was created, or while a leader moves.
PASSING = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
_NO_LEADERS = {KafkaError.NO_ERROR, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE}


#: For how long a broker that throttles is waited for where nobody says how long to wait.
MUTED_SECONDS = 10.0


class Refused(EventveilError):
    """A broker refused what it was asked for; ``error`` is its answer."""

    def __init__(self, what: str, code: int, right: str) -> None:
        """``right`` is what the request needs."""
        told = refusal(code, right, what)
        super().__init__(f"{told} ({KafkaError(code).name()})")
        self.error = KafkaError(code, told)


class Link:
    """Connections for one thread at a time; see the module."""

    def __init__(self, settings: dict[str, Any], throttling: Throttling) -> None:
        self._settings, self._throttling = settings, throttling
        self._connections: dict[Address, Connection] = {}

    def refresh(self) -> None:
        """Drop the connections that have ended meanwhile, or will soon."""
        for address, connection in [*self._connections.items()]:
            if not connection.is_alive:
                self._drop(address)

    def muted(self, address: Address) -> float:
        """For how many seconds a broker will read nothing from this link, because of a quota."""
        return connection.muted if (connection := self._connections.get(address)) else 0.0

    def ask(self, address: Address, request: Any, seconds: float) -> Any:
        """The answer of a broker. Raises Unreached and Unanswered."""
        connection = self._connection(address, seconds)
        left = connection.wait_while_muted(seconds)
        try:
            connection.send(request, left)
            return self._received(connection, left)
        except Unanswered:
            self._drop(address)
            raise

    def ask_all(self, requests: Mapping[Address, Any], seconds: float) -> dict[Address, Any]:
        """Ask several brokers at once; the answer of each, or Unreached.

        Raises Unanswered; the link must not be used after that.
        """
        answers: dict[Address, Any] = {}
        asked: dict[Address, Connection] = {}
        give_up = time.monotonic() + seconds
        # Those that read at once need not wait for the others.
        for address in sorted(requests, key=self.muted):
            try:
                connection = self._connection(address, seconds)
                left = connection.wait_while_muted(give_up - time.monotonic())
            except Unreached as error:
                answers[address] = error
            else:
                connection.send(requests[address], left)
                asked[address] = connection
        for address, connection in asked.items():
            answers[address] = self._received(connection, give_up - time.monotonic())
        return answers

    def _received(self, connection: Connection, seconds: float) -> Any:
        answer = connection.receive(seconds)
        self._throttling.note(connection)
        return answer

    def ask_any(self, brokers: set[Address], request: Any) -> Any:
        """The answer of some broker, one that is connected if possible. Raises Unreached if none answers."""
        obstacle: EventveilError | None = None
        for address in sorted(
            random.sample(sorted(brokers), k=len(brokers)),
            key=lambda one: (self.muted(one), one not in self._connections),
        ):
            try:
                return self.ask(address, request, _ANY_SECONDS + min(self.muted(address), MUTED_SECONDS))
            except (Unreached, Unanswered) as error:
                obstacle = error
        if isinstance(obstacle, Unreached):
            raise obstacle
        raise Unreached("every broker", obstacle)

    def _connection(self, address: Address, seconds: float) -> Connection:
        if address not in self._connections:
            self._connections[address] = Connection(address, self._settings, seconds)
        return self._connections[address]

    def _drop(self, address: Address) -> None:
        if (found := self._connections.pop(address, None)) is not None:
            found.close()

    def close(self) -> None:
        """End all connections."""
        for address in [*self._connections]:
            self._drop(address)


class Links:
    """The links to one cluster, and what its brokers have said of leaders. Any thread may use it."""

    def __init__(self, kafka: Kafka) -> None:
        self._settings = aiokafka_settings(kafka)
        self.throttling = Throttling(client_id(self._settings))
        self._bootstrap: set[Address] = {
            (host, port) for host, port, _ in collect_hosts(self._settings["bootstrap_servers"])
        }
        self._lock = Lock()
        self._free: list[Link] = []
        #: By id of the broker.
        self._brokers: dict[int, Address] = {}
        #: By topic, the leader of each partition (-1: none), and when that was said.
        self._leaders: dict[str, tuple[dict[int, int], float]] = {}

    @contextmanager
    def borrowed(self) -> Iterator[Link]:
        """A link for this thread alone; the one that was used last, so that others come to rest."""
        with self._lock:
            link = self._free.pop() if self._free else Link(self._settings, self.throttling)
        try:
            link.refresh()
            yield link
        except BaseException:
            link.close()
            raise
        with self._lock:
            self._free.append(link)

    @contextmanager
    def new(self) -> Iterator[Link]:
        """A link of its own, without connections yet: any broker that is asked is one that chance chooses."""
        link = Link(self._settings, self.throttling)
        try:
            yield link
        finally:
            link.close()

    def cluster_id(self) -> str | None:
        """The id of the cluster that the bootstrap addresses name at this moment, None if it does not tell.

        Through a new connection: one that stands stays with a cluster that the name no longer means. Raises
        Unreached.
        """
        with self.new() as link:
            answer = link.ask_any(self._bootstrap, MetadataRequest([], allow_auto_topic_creation=False))
        found: str | None = answer.cluster_id
        return found

    @property
    def brokers(self) -> set[Address]:
        """All that are known."""
        return {*self._brokers.values()} | self._bootstrap

    def leaders(self, link: Link, topic: str) -> dict[int, int]:
        """The broker that leads each partition of a topic, -1 if none does; empty if there is no topic.

        Raises Unreached, and Refused if it may not be known.
        """
        found, told = self._leaders.get(topic, ({}, 0.0))
        if not found or told < time.monotonic() - _LAYOUT_SECONDS:
            found = self.renewed(link, [topic])[topic]
        return found

    def address(self, broker: int) -> Address | None:
        """Where a broker is, None if none is known by that id."""
        return self._brokers.get(broker)

    def renewed(self, link: Link, topics: Collection[str]) -> dict[str, dict[int, int]]:
        """The same of several topics, as a broker has it now. Raises as ``leaders`` does."""
        # Without leave to create them: a sink that was deleted must be missed, not made anew.
        request = MetadataRequest([*topics], allow_auto_topic_creation=False)
        answer = link.ask_any(self.brokers, request)
        if answer.brokers:
            self._brokers = {number: (host, port) for number, host, port, *_ in answer.brokers}
        found = {}
        for code, topic, _, partitions in answer.topics:
            if code not in _NO_LEADERS:
                raise Refused(f"topic {topic}", code, "Describe")
            found[topic] = {number: leader for _, number, leader, *_ in partitions}
            self._leaders[topic] = found[topic], time.monotonic()
        return found

    def forget(self, topic: str) -> None:
        """Ask for the leaders of a topic again before they are used again."""
        self._leaders.pop(topic, None)


@cache
def links(kafka: Kafka) -> Links:
    """The links of this process to a cluster."""
    return Links(kafka)

"""What the cluster says of its topics: ids, partitions, settings, offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Generic, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as AskedPartition
from confluent_kafka.admin import ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

from eventveil.kafka.admin import Admin
from eventveil.kafka.connection import Unreached
from eventveil.kafka.diagnosis import obstacle
from eventveil.kafka.links import PASSING, links
from eventveil.kafka.reader import epoch_end
from eventveil.kafka.rights import needing, with_right
from eventveil.kafka.settings import librdkafka
from eventveil.model.errors import EventveilError, missing
from eventveil.model.reach import Reach
from eventveil.model.records import NO_EPOCH, TopicPartition
from eventveil.model.topology import Kafka

T = TypeVar("T")
#: One question for offsets; its broker may be down, and no longer the leader at the next look.
_ATTEMPT_SECONDS = 10.0
_TIMEOUT_SECONDS = 30.0
_REACH_SECONDS = 10.0
_REFRESH_MILLISECONDS = 10_000
#: A broker that has just started, or a group that moves: another broker answers for it in a moment.
OTHER_COORDINATOR = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
#: What librdkafka says of a question whose connection was lost, also because the broker is a member no more.
_LOST = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._DESTROY_BROKER}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the cluster; ``id`` changes when it is deleted and created again.

    ``replicas``: the fewest of any partition, those included that are down; None if brokers do not say.
    """

    name: str
    id: str
    partitions: int
    replicas: int | None = field(default=None, compare=False)

    @property
    def places(self) -> list[TopicPartition]:
        """Its partitions."""
        return [TopicPartition(self.name, partition) for partition in range(self.partitions)]


class Shared(Generic[T]):
    """A question of many threads: one is under way at a time; threads that ask meanwhile share the next.

    So an answer is always to a question that was put after the request.
    """

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._asking, self._joining = Lock(), Lock()
        self._next: Future[T] | None = None

    def answer(self) -> T:
        """What is answered; raises what asking raised."""
        with self._joining:
            asks = self._next is None
            found = self._next = self._next or Future()
        if asks:
            with self._asking:
                with self._joining:
                    self._next = None
                try:
                    found.set_result(self._ask())
                except BaseException as error:
                    found.set_exception(error)
        return found.result()


class Cluster:
    """A thin, blocking view on one cluster. Broker errors are KafkaException.

    Raises EventveilError at once if no broker answers.
    """

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self._settings = {
            **librdkafka(kafka),
            "socket.timeout.ms": int(_TIMEOUT_SECONDS * 1000),
            "topic.metadata.refresh.interval.ms": _REFRESH_MILLISECONDS,
        }
        if kafka.security.protocol != "PLAINTEXT" and (found := obstacle(kafka)) and found.is_final:
            # librdkafka would try again and again, and then call it a transport failure.
            raise found
        self._ids = Shared(self._told_id)
        self._admin = Admin(self._settings)
        try:
            self._admin.list_topics(timeout=_REACH_SECONDS)
        except KafkaException as error:
            told = obstacle(kafka) or f"{error.args[0].str()}. Check the address, and kafka.security"
            raise EventveilError(f"no broker of kafka.bootstrap answers: {told}") from None

    @contextmanager
    def _client(self) -> Iterator[Admin]:
        """The client; the next one gets a new one if it does not get through.

        A broker that has just come back may know of no controller; a client that was told so looks for one
        until its metadata are refreshed, and times out meanwhile.
        """
        client = self._admin
        try:
            yield client
        except KafkaException as error:
            if error.args[0].code() in _LOST and self._admin is client:
                self._admin = Admin(self._settings)
            raise

    def id(self) -> str:
        """The id of the cluster that ``kafka.bootstrap`` names at this moment.

        Neither by describe_cluster: librdkafka 2.16 aborts the process when a broker answers that has just
        started and knows of no other yet. Nor by a new client of it, which is told of every topic that there
        is: hundreds of owners ask when they take over.
        """
        found = self._ids.answer()
        if not found:
            raise EventveilError("the cluster does not report its id: Apache Kafka does since version 0.10.1")
        return found

    def _told_id(self) -> str | None:
        give_up = time.monotonic() + _TIMEOUT_SECONDS
        while True:
            try:
                return links(self.kafka).cluster_id()
            except Unreached as error:
                if error.is_final or time.monotonic() > give_up:
                    raise KafkaException(error.error) from error
                time.sleep(0.2)

    def brokers(self) -> int:
        """How many brokers are up, by the metadata."""
        with self._client() as admin:
            return len(admin.list_topics(timeout=_REACH_SECONDS).brokers)

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Those of the named topics that exist."""
        return self._again(lambda: self._told_topics(names), _LOST) if names else {}

    def _again(self, ask: Callable[[], T], passing: Collection[int]) -> T:
        """What is answered; for some time a question that changes nothing is asked again after an error that
        passes."""
        give_up = time.monotonic() + _TIMEOUT_SECONDS
        while True:
            try:
                return ask()
            except KafkaException as error:
                if error.args[0].code() not in passing or time.monotonic() > give_up:
                    raise
                time.sleep(0.2)

    def _told_topics(self, names: Collection[str]) -> dict[str, Topic]:
        found: dict[str, Topic] = {}
        collection = TopicCollection(sorted(names))
        with self._client() as admin:
            for name, future in admin.describe_topics(collection, request_timeout=_TIMEOUT_SECONDS).items():
                with _missing_is_fine(), needing("Describe", f"topic {name}"):
                    description = future.result()
                    replicas = min((len(one.replicas) for one in description.partitions), default=0)
                    number = len(description.partitions)
                    found[name] = Topic(name, str(description.topic_id), number, replicas or None)
        return found

    def existing(self, names: Collection[str]) -> dict[str, Topic]:
        """Topics that must exist. Raises Unsettled: a broker may not know of a topic yet, or no longer."""
        found = self.topics(names)
        for name in sorted(names):
            if name not in found:
                raise missing(name)
        return found

    def topic(self, name: str) -> Topic:
        """A topic that must exist. Raises as ``existing`` does."""
        return self.existing([name])[name]

    def leaderless(self, name: str) -> frozenset[int]:
        """The partitions of a topic whose leader is none of the brokers that are alive, by the metadata."""
        with self._client() as admin:
            metadata = admin.list_topics(name, timeout=_REACH_SECONDS)
        topic = metadata.topics[name]
        if topic.error is not None:
            raise KafkaException(topic.error)
        return frozenset(
            number
            for number, partition in topic.partitions.items()
            if partition.leader not in metadata.brokers
        )

    def settings(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """The settings of existing topics, broker defaults included."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        return self._again(lambda: self._told_settings(resources), _LOST) if resources else {}

    def _told_settings(self, resources: list[ConfigResource]) -> dict[str, dict[str, str]]:
        with self._client() as admin:
            answers = admin.describe_configs(resources, request_timeout=_TIMEOUT_SECONDS)
            found: dict[str, dict[str, str]] = {}
            for resource, future in answers.items():
                with needing("DescribeConfigs", f"topic {resource.name}"):
                    found[resource.name] = {name: entry.value for name, entry in future.result().items()}
            return found

    def create(self, topics: Iterable[NewTopic]) -> None:
        """Create topics and wait until they can be used; one that exists already is left as it is.

        A broker that asks the controller a second time, as after a moment without one, answers that the topic
        exists, although it has just been created. How it is set is for an inspection to tell.
        """
        futures = self._admin.create_topics(list(topics), operation_timeout=_TIMEOUT_SECONDS)
        # All of them, before an error of one: what can be created is.
        errors = [
            with_right(error, "Create", f"topic {name}") if isinstance(error, KafkaException) else error
            for name, future in futures.items()
            if (error := future.exception()) is not None and not _exists(error)
        ]
        if errors:
            raise errors[0]
        give_up = time.monotonic() + _TIMEOUT_SECONDS
        while len(found := self.topics(futures)) < len(futures) and time.monotonic() < give_up:
            time.sleep(0.1)
        # Leaders are known a little later still.
        self.end_offsets(place for topic in found.values() for place in topic.places)

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic ``partitions``, unless it has them already, and wait until they can be used."""
        if self.topic(name).partitions >= partitions:
            return
        futures = self._admin.create_partitions(
            [NewPartitions(name, partitions)], operation_timeout=_TIMEOUT_SECONDS
        )
        with needing("Alter", f"topic {name}"):
            futures[name].result()
        give_up = time.monotonic() + _TIMEOUT_SECONDS
        while self.topic(name).partitions < partitions and time.monotonic() < give_up:
            time.sleep(0.1)
        self.end_offsets(TopicPartition(name, number) for number in range(partitions))

    def names(self) -> frozenset[str]:
        """The names of all topics that there are, as far as they may be seen."""
        with self._client() as admin:
            return frozenset(admin.list_topics(timeout=_REACH_SECONDS).topics)

    def delete(self, names: Iterable[str]) -> None:
        """Delete topics, in one request, and wait until the brokers have; one that is gone is no error."""
        futures = self._admin.delete_topics([*names], operation_timeout=_TIMEOUT_SECONDS) if names else {}
        for name, future in futures.items():
            with _missing_is_fine(), needing("Delete", f"topic {name}"):
                future.result()
        give_up = time.monotonic() + _TIMEOUT_SECONDS
        while self.topics([*futures]) and time.monotonic() < give_up:
            time.sleep(0.1)

    def delete_group(self, group: str) -> None:
        """Delete a consumer group that has no members; one that is gone is no error."""
        (future,) = self._admin.delete_consumer_groups([group]).values()
        with _missing_is_fine(), needing("Delete", f"group {group}"):
            future.result()

    def first_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that each partition still has."""
        return self._offsets({place: OffsetSpec.earliest() for place in places})

    def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermark of each partition: records of open transactions lie below it too."""
        return self._offsets({place: OffsetSpec.latest() for place in places})

    def reached(self, place: TopicPartition) -> Reach:
        """The high watermark of a partition, and the epoch of the leader that tells it."""
        (found,) = self._found({place: OffsetSpec.latest()}).values()
        return Reach(NO_EPOCH if found.leader_epoch is None else found.leader_epoch, found.offset)

    def parted(self, place: TopicPartition, reach: Reach, least: int = NO_EPOCH) -> int | None:
        """Where the log of a partition parted from what was read of it; None if nothing shows that it did.

        A leader answers that is in epoch ``least`` or a later one.
        """
        return reach.parted(epoch_end(self.kafka, place, reach.epoch, least))

    def ask_end(self, place: TopicPartition, seconds: float) -> Future[Any]:
        """Ask where a partition ends, and do not wait for the answer.

        The result has ``offset``, which is -1 or less where no broker told it within ``seconds``.
        """
        request = {AskedPartition(*place): OffsetSpec.latest()}
        answers = self._admin.list_offsets(
            request, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=seconds
        )
        (answer,) = answers.values()
        return answer

    def renew(self) -> None:
        """Let what is asked from now on go through a new client."""
        self._admin = Admin(self._settings)

    def offsets_at(self, places: Iterable[TopicPartition], time: int) -> dict[TopicPartition, int]:
        """The first offset whose record has a timestamp of at least ``time``; the end if there is none.

        ``time`` may lie before 1970, where no record does and negative numbers mean something else to Kafka.
        """
        places = list(places)
        ends = self.end_offsets(places)
        found = self._offsets({place: OffsetSpec.for_timestamp(max(0, time)) for place in places})
        return {place: ends[place] if offset < 0 else offset for place, offset in found.items()}

    def _offsets(self, wanted: dict[TopicPartition, OffsetSpec]) -> dict[TopicPartition, int]:
        return {place: told.offset for place, told in self._found(wanted).items()}

    def _found(self, wanted: dict[TopicPartition, OffsetSpec]) -> dict[TopicPartition, Any]:
        request = {AskedPartition(*place): spec for place, spec in wanted.items()}

        def ask() -> dict[TopicPartition, Any]:
            try:
                return self._told_offsets(request)
            except KafkaException as error:
                if error.args[0].code() in PASSING:
                    # Describing the topics refreshes the leaders that the client remembers.
                    self.topics({at.topic for at in request})
                raise

        return self._again(ask, PASSING | _LOST) if request else {}

    def _told_offsets(self, request: dict[AskedPartition, OffsetSpec]) -> dict[TopicPartition, Any]:
        """What is told of each partition: ``offset`` and ``leader_epoch``."""
        with self._client() as admin:
            answers = admin.list_offsets(
                request, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=_ATTEMPT_SECONDS
            )
            found: dict[TopicPartition, Any] = {}
            for at, future in answers.items():
                with needing("Describe", f"topic {at.topic}"):
                    found[TopicPartition(at.topic, at.partition)] = future.result()
            # A request that timed out raises nothing: its offset is invalid (-1001). Only -1 has a meaning,
            # "no such record", for a search by time.
            untold = [str(place) for place, told in found.items() if told.offset < -1]
            if untold:
                text = f"no broker answers for the offsets of {'; '.join(untold)}. Is the leader down?"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text))
            return found

    def group_members(self, group: str) -> int:
        """How many members a consumer group has now; 0 if there is no such group."""
        return self._again(lambda: self._told_members(group), OTHER_COORDINATOR)

    def _told_members(self, group: str) -> int:
        with self._client() as admin:
            (future,) = admin.describe_consumer_groups([group]).values()
            members = 0
            with _missing_is_fine(), needing("Describe", f"group {group}"):
                members = len(future.result().members)
        return members


@contextmanager
def _missing_is_fine() -> Iterator[None]:
    """Pass over an error that says that there is no such topic or group."""
    try:
        yield
    except KafkaException as error:
        if error.args[0].code() not in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND}:
            raise


def _exists(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS

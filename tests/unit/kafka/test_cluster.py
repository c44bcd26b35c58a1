"""One question for all who wait: nobody gets an answer to a question that was put before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eventveil.kafka.cluster import Cluster, Shared, Topic

THREADS = 8


class Questions:
    """Answers with the number of the question, once that is let go."""

    def __init__(self) -> None:
        self.asked = 0
        self.put, self.go = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self) -> int:
        self.asked += 1
        number = self.asked
        self.put.release()
        assert self.go.acquire(timeout=60)
        return number


def test_who_comes_while_a_question_is_under_way_shares_the_next_one() -> None:
    questions = Questions()
    shared = Shared(questions)
    with ThreadPoolExecutor(THREADS) as threads:
        first = threads.submit(shared.answer)
        assert questions.put.acquire(timeout=60)
        others = [threads.submit(shared.answer) for _ in range(THREADS - 1)]
        questions.go.release()
        assert first.result(60) == 1
        while not all(one.done() for one in others):
            questions.go.release()
            threading.Event().wait(0.001)
        answers = {one.result() for one in others}
    assert 1 not in answers
    assert answers == {*range(2, questions.asked + 1)}


def test_one_after_the_other_each_asks_for_itself() -> None:
    numbers = iter(range(9))
    shared = Shared(lambda: next(numbers))
    assert [shared.answer() for _ in range(3)] == [0, 1, 2]


def test_a_failure_is_everybodys_who_shared_it_and_nobody_elses() -> None:
    failures = iter([True, False])

    def ask() -> str:
        if next(failures):
            raise ValueError("away")
        return "here"

    shared = Shared(ask)
    with pytest.raises(ValueError, match="away"):
        shared.answer()
    assert shared.answer() == "here"


def test_those_who_wait_together_ask_once() -> None:
    questions = Questions()
    shared = Shared(questions)
    with ThreadPoolExecutor(THREADS) as threads:
        first = threads.submit(shared.answer)
        assert questions.put.acquire(timeout=60)
        others = [threads.submit(shared.answer) for _ in range(THREADS - 1)]
        # One of them waits for its turn to ask, the others for its answer.
        while shared._next is None or len(shared._next._condition._waiters) < THREADS - 2:  # type: ignore[attr-defined]
            threading.Event().wait(0.001)
        questions.go.release(2)
        assert first.result(60) == 1
        assert {one.result(60) for one in others} == {2}
    assert questions.asked == 2


class Groups(Cluster):
    """A cluster whose brokers give these answers about a group, one after the other."""

    def __init__(self, *answers: int | SimpleNamespace) -> None:
        self.answers = list(answers)

    @contextmanager
    def _client(self) -> Iterator[Any]:
        yield self

    def describe_consumer_groups(self, groups: list[str]) -> dict[str, Future[Any]]:
        answer, future = self.answers.pop(0), Future[Any]()
        if isinstance(answer, int):
            future.set_exception(KafkaException(KafkaError(answer)))
        else:
            future.set_result(answer)
        return {groups[0]: future}


def test_a_group_whose_coordinator_moves_is_asked_for_again() -> None:
    moved, loading = KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS
    groups = Groups(moved, loading, SimpleNamespace(members=["one", "two"]))
    assert groups.group_members("shop") == 2
    assert groups.answers == []


def test_a_group_that_is_not_there_has_no_members_and_other_errors_are_raised() -> None:
    assert Groups(KafkaError.GROUP_ID_NOT_FOUND).group_members("shop") == 0
    with pytest.raises(KafkaException):
        Groups(KafkaError.INVALID_GROUP_ID).group_members("shop")


class Topics(Groups):
    """The same about the only topic that is asked for."""

    def describe_topics(self, names: Any, **_: object) -> dict[str, Future[Any]]:
        ((_, future),) = self.describe_consumer_groups(["raw"]).items()
        return {"raw": future}


def described(*replicas: int) -> SimpleNamespace:
    partitions = [SimpleNamespace(replicas=[object()] * number) for number in replicas]
    return SimpleNamespace(topic_id="id", partitions=partitions)


@pytest.mark.parametrize(
    ("replicas", "fewest"), [((3, 1, 2), 1), ((3, 3), 3), ((0, 0), None), ((3, 0), None), ((), None)]
)
def test_a_topic_has_the_fewest_replicas_of_its_partitions_if_brokers_say_how_many(
    replicas: tuple[int, ...], fewest: int | None
) -> None:
    assert Topics(described(*replicas)).topic("raw").replicas == fewest


def test_topics_are_asked_for_again_where_a_connection_is_lost_meanwhile() -> None:
    found = described(1, 1, 1)
    topics = Topics(KafkaError._DESTROY_BROKER, KafkaError._TRANSPORT, found)
    assert topics.topic("raw") == Topic("raw", "id", 3)
    assert topics.answers == []
    with pytest.raises(KafkaException):
        Topics(KafkaError.TOPIC_AUTHORIZATION_FAILED).topic("raw")

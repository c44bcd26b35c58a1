"""An error in words, also where a client of Kafka raised it."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException


def words_of(error: BaseException) -> str:
    """As text; of an error of librdkafka its words and what Kafka calls it.

    As text that would be KafkaError{code=...,val=...,str="..."}.
    """
    if isinstance(error, KafkaException) and error.args and isinstance(found := error.args[0], KafkaError):
        return f"{found.str()} ({found.name()})"
    return str(error)

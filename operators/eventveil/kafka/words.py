"""What Kafka's clients say of an error."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException


def words_of(error: KafkaException) -> str:
    """An error of librdkafka in words, with what Kafka calls it.

    As text it would be KafkaError{code=...,val=...,str="..."}.
    """
    if error.args and isinstance(found := error.args[0], KafkaError):
        return f"{found.str()} ({found.name()})"
    return str(error)

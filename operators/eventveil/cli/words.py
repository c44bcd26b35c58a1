"""What a command says of an error that ends it."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException


def words_of(error: BaseException) -> str:
    """An error with its place; of a file also what to do, of a broker also what Kafka calls it."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be opened ({error.strerror}); check the path and its rights"
    if isinstance(error, KafkaException) and error.args and isinstance(found := error.args[0], KafkaError):
        # As text it would be KafkaError{code=...,val=...,str="..."}.
        return f"{found.str()} ({found.name()})"
    return str(error)

"""Refusals that waiting does not end: which right is missing on what, or what of the brokers does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

_NO_RIGHT = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
#: Brokers that are not set up, or too old, for what they are asked.
_UNFIT = {KafkaError.INVALID_TRANSACTION_TIMEOUT, KafkaError.UNSUPPORTED_VERSION}
_DENIED = _NO_RIGHT | {KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION}


def is_denied(error: KafkaError) -> bool:
    """Whether a right is missing, so that waiting will not help."""
    return error.code() in _DENIED


def is_lasting(error: KafkaError) -> bool:
    """Whether waiting will not help: a right is missing, or the brokers do not fit."""
    return is_denied(error) or error.code() in _UNFIT


@contextmanager
def needing(right: str, place: str) -> Iterator[None]:
    """Let a refusal say which right is missing where; ``right`` is what Kafka calls the operation."""
    try:
        yield
    except KafkaException as error:
        raise with_right(error, right, place) from None


def with_right(error: KafkaException, right: str, place: str) -> KafkaException:
    """The error; with the right that is missing, if it is about that."""
    code = error.args[0].code()
    return KafkaException(KafkaError(code, refusal(code, right, place))) if code in _NO_RIGHT else error


def refusal(code: int, right: str, place: str) -> str:
    """What an error code of a broker says of a place, and what to do if a right is missing there."""
    told = f"{place}: {KafkaError(code).str()}"
    if code not in _NO_RIGHT:
        return told
    return (
        f"{told}: the user of kafka.security has no right to {right} there. Grant it by an ACL; the table of"
        " access rights in docs/deploy.md has all that are needed"
    )

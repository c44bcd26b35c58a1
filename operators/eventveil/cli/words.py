"""What a command says of an error that ends it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click
from confluent_kafka import KafkaException

from eventveil.cli.loading import EXIT_FAILED
from eventveil.kafka.words import words_of as kafka_words
from eventveil.model.errors import EventveilError


def words_of(error: BaseException) -> str:
    """An error with its place; of a file also what to do, of a broker also what Kafka calls it."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be opened ({error.strerror}); check the path and its permissions"
    return kafka_words(error)


def fail(command: str, what: str) -> NoReturn:
    """End the process with status 1, having said on standard error what is wrong."""
    click.echo(f"eventveil {command}: {what}", err=True)
    sys.exit(EXIT_FAILED)


def stop_if_unread(error: BaseException) -> None:
    """End the process with status 1, in silence, if nobody reads its output any more, as after `head`."""
    if isinstance(error, BrokenPipeError):
        # What is still buffered must not be written when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)


@contextmanager
def exit_on_error(command: str, *others: type[Exception]) -> Iterator[None]:
    """End the process with status 1 and the error in words, if it is ours, Kafka's or of ``others``."""
    kinds: tuple[type[Exception], ...] = (EventveilError, KafkaException, *others)
    try:
        yield
    except kinds as error:
        stop_if_unread(error)
        fail(command, words_of(error))

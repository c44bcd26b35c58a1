"""What a command says of an error that ends it, with the path of its topology in what is to be run."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click
from confluent_kafka import KafkaException

from eventveil.cli.loading import EXIT_FAILED, EXIT_MEMORY
from eventveil.kafka.words import words_of as kafka_words
from eventveil.model.errors import EventveilError
from eventveil.process.memory import MemoryLimitReached

#: A command with the word that stands for the file in messages, which are made where its path is not known.
_NAMED = re.compile(r"(`eventveil [a-z]+) TOPOLOGY\b")


def words_of(error: BaseException, place: str | None = None) -> str:
    """An error with its place; of a file also what to do, of a broker also what Kafka calls it.

    ``place`` is that of an OSError or a ValueError that names no file.
    """
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be opened ({error.strerror}); check the path and its permissions"
    if place is not None and isinstance(error, (OSError, ValueError)):
        return f"{place}: {error}; check the path and its permissions"
    return kafka_words(error)


def with_path(text: str, path: str) -> str:
    """The text with the path of its topology, instead of that word, in the commands that it names."""
    return _NAMED.sub(lambda found: f"{found[1]} {shlex.quote(path)}", text)


def say(text: str, *, err: bool = True) -> None:
    """Print a text that may name commands to run, about the topology that this command was given."""
    context = click.get_current_context(silent=True)
    path = None if context is None else context.params.get("topology")
    click.echo(text if path is None else with_path(text, path), err=err)


def fail(command: str, what: str, status: int = EXIT_FAILED) -> NoReturn:
    """End the process, having said on standard error what is wrong."""
    say(f"eventveil {command}: {what}")
    sys.exit(status)


def stop_if_unread(error: BaseException) -> None:
    """End the process with status 1, in silence, if nobody reads its output any more, as after `head`."""
    if isinstance(error, BrokenPipeError):
        # What is still buffered must not be written when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)


@contextmanager
def exit_on_error(command: str, *others: type[Exception], place: str | None = None) -> Iterator[None]:
    """End the process with the error in words (``words_of``), if it is ours, Kafka's or of ``others``.

    The status is 1, or EXIT_MEMORY at the limit of memory.
    """
    kinds: tuple[type[Exception], ...] = (EventveilError, KafkaException, *others)
    try:
        yield
    except kinds as error:
        stop_if_unread(error)
        status = EXIT_MEMORY if isinstance(error, MemoryLimitReached) else EXIT_FAILED
        fail(command, words_of(error, place), status)

"""``eventveil run``: the worker."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable

import click
from confluent_kafka import KafkaException

from operators.cli.loading import EXIT_FAILED, load_or_exit
from operators.errors import EventveilError
from operators.kafka.cluster import Cluster
from operators.kafka.provision import inspect_topics
from operators.topology.model import Topology
from operators.worker.app import Worker

log = logging.getLogger("operators")

#: A worker that is asked to stop is gone after this long, whatever holds it up.
_LAST_RESORT_SECONDS = 9.5


@click.command()
@click.argument("topology")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning"]), default="info", show_default=True
)
def run(topology: str, log_level: str) -> None:
    """Run the worker of TOPOLOGY until SIGTERM or SIGINT."""
    configure_logging(log_level)
    run_worker(load_or_exit(topology), Worker)


def configure_logging(level: str) -> None:
    """Log to standard error; Faust and its kind only when something is wrong."""
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("operators").setLevel(level.upper())


def run_worker(topology: Topology, make: Callable[[Topology], Worker]) -> None:
    """Check the topics, run a worker, end the process: 0 after a graceful stop, 1 after a failure."""
    _raise_file_limit()
    try:
        failure = check_surroundings(topology) or asyncio.run(_work(topology, make))
    except (KafkaException, EventveilError) as error:
        failure = error
    if failure is not None:
        log.error("stopped: %s", failure)
    logging.shutdown()
    # Threads inside librdkafka may still wait for a broker that is gone; what matters is committed.
    os._exit(0 if failure is None else EXIT_FAILED)


def _raise_file_limit() -> None:
    """Allow all open files that the system grants: each owned partition has a producer with its sockets."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def check_surroundings(topology: Topology) -> BaseException | None:
    """What is wrong with the topics, if anything. Raises EventveilError or KafkaException."""
    inspection = inspect_topics(topology, Cluster(topology.kafka))
    mistakes = [f"topic {plan.name} ({plan.role}) does not exist" for plan in inspection.missing]
    mistakes += inspection.mistakes
    if mistakes:
        return EventveilError("; ".join(mistakes) + ". See `eventveil topics`")
    return None


async def _work(topology: Topology, make: Callable[[Topology], Worker]) -> BaseException | None:
    worker = make(topology)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        log.info("stopping")
        last_resort = threading.Timer(_LAST_RESORT_SECONDS, os._exit, [0])
        last_resort.daemon = True
        last_resort.start()
        worker.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return await worker.run()

"""``eventveil run``: the worker."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click
from click.core import ParameterSource
from confluent_kafka import KafkaException

from eventveil.audit.witness_file import WitnessFile
from eventveil.cli.loading import EXIT_FAILED, EXIT_MEMORY, load_or_exit
from eventveil.cli.options import memory_limit, witness_file
from eventveil.cli.several import run_several
from eventveil.cli.words import with_path, words_of
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.rights import is_denied
from eventveil.lifecycle.create import inspect_topics
from eventveil.lifecycle.fitting import check_file
from eventveil.lifecycle.topics import absent
from eventveil.live.serving import Shown
from eventveil.model.errors import EventveilError, Unsettled
from eventveil.model.topology import Topology
from eventveil.process import allocator, kernel
from eventveil.process.memory import MemoryLimitReached, format_size
from eventveil.process.patience import PATIENCE_SECONDS, Patience
from eventveil.process.repeats import HiddenOffsets, Repeats
from eventveil.worker.app import Worker
from eventveil.worker.faust.driver import LONGEST_MEMBER
from eventveil.worker.observe.endpoint import Endpoint
from eventveil.worker.observe.losses import Losses
from eventveil.worker.observe.observation import Observation
from eventveil.worker.observe.surroundings import Surroundings
from eventveil.worker.watching import Watch

log = logging.getLogger("eventveil")

#: A worker that is asked to stop is gone after this long, whatever holds it up.
_LAST_RESORT_SECONDS = 9.5
#: Between two looks at topics that are not as they should be.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
#: The number of the first process of a container, which SIGTERM does not end unless it is handled.
_FIRST_PROCESS = 1


#: Metrics for Prometheus, on this machine only.
_METRICS = "127.0.0.1:9464"
#: As many workers on one machine find a port each behind that one without being told where.
_FURTHER_PORTS = 99
_LAST_PORT = 65_535
#: Of ``--processes``.
MOST_PROCESSES = 64


class Address(click.ParamType):
    """HOST:PORT, or "off", which is None."""

    name = "address"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """How the help shows it."""
        return "HOST:PORT|off"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int] | None:
        """Fails, which is wrong usage, for anything else; an IPv6 address stands in brackets."""
        if value == "off":
            return None
        match = re.fullmatch(r"(\[[0-9A-Fa-f:.%]+\]|[^:\[\]\s]+):([0-9]{1,5})", str(value), re.ASCII)
        if match is None or int(match[2]) > _LAST_PORT:
            self.fail(f"{value!r} should be HOST:PORT, such as {_METRICS}, or off", param, ctx)
        return match[1].strip("[]"), int(match[2])


def _member(context: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Fails, which is wrong usage, for a name that brokers do not take."""
    try:
        return _member_name(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _member_name(value: str | None) -> str | None:
    """The name. Raises ValueError if brokers do not take it."""
    allowed = f"[A-Za-z0-9._-]{{1,{LONGEST_MEMBER}}}"
    if value is not None and (value in {".", ".."} or not re.fullmatch(allowed, value)):
        raise ValueError(
            f"it should be 1 to {LONGEST_MEMBER} of the characters A-Z, a-z, 0-9, '.', '_' and '-'"
        )
    return value


@click.command()
@click.argument("topology")
@click.option(
    "--metrics",
    type=Address(),
    default=_METRICS,
    show_default=True,
    help="Where to serve /metrics, /health/live and /health/ready; port 0 takes a free one. If the "
    "default port is taken, the next free one is used, and the log says which; a port that you set must be "
    "free.",
)
@click.option(
    "--page/--no-page",
    default=None,
    help="Serve a page of the releases there, at /, for browsers: noisy counts, budget and health, nothing "
    "raw. Default: on if --metrics listens on this machine only.",
)
@click.option(
    "--raw-metrics",
    is_flag=True,
    help="Add the metrics that reveal exact counts of events: anybody who can read them sees raw data.",
)
@click.option(
    "--raw-log",
    is_flag=True,
    help="Warn in the log how many events do not count, and why: anybody who can read it sees raw data.",
)
@memory_limit
@click.option(
    "--witness",
    type=witness_file,
    metavar="FILE",
    help="Refuse to release a stream whose ledger lacks a record noted by `eventveil ledger --witness FILE`.",
)
@click.option(
    "--member",
    metavar="NAME",
    callback=_member,
    help="A name in the consumer group that no other worker has, such as that of the pod. A worker that "
    "comes back under it within 30 seconds keeps its partitions, and the others do not stop. If it does "
    "not come back, others take them over after 30 seconds; of a worker without a name, after 10 seconds.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, MOST_PROCESSES),
    default=1,
    show_default=True,
    help="Number of worker processes, at most one per core. They share --memory-limit. --metrics HOST:PORT "
    "takes as many ports, from PORT on, and --member NAME becomes NAME-1, NAME-2 ... A worker that dies is "
    "restarted while the others continue.",
)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning"]), default="info", show_default=True
)
@click.pass_context
def run(
    context: click.Context,
    topology: str,
    metrics: tuple[str, int] | None,
    page: bool | None,
    raw_metrics: bool,
    raw_log: bool,
    memory_limit: int | None,
    witness: Path | None,
    member: str | None,
    processes: int,
    log_level: str,
) -> None:
    """Run the worker of TOPOLOGY until SIGTERM or SIGINT."""
    if raw_metrics and metrics is None:
        raise click.UsageError("--raw-metrics needs --metrics HOST:PORT")
    if page and metrics is None:
        raise click.UsageError("--page needs --metrics HOST:PORT")
    # An address that somebody asked for is where somebody looks: it is had, or the worker ends.
    chosen = context.get_parameter_source("metrics") is not ParameterSource.DEFAULT
    settings = WorkerSettings(
        topology, metrics, chosen, page, raw_metrics, raw_log, memory_limit, witness, member, log_level
    )
    if processes == 1:
        settings.work()
    work = ProcessShare(settings, processes)
    work.check()
    configure_logging(log_level, path=topology)
    load_or_exit(topology)
    log.info("starting %d worker processes", processes)
    status = run_several(work, processes)
    log.log(logging.ERROR if status else logging.INFO, "all workers have stopped")
    sys.exit(status)


@dataclass(frozen=True)
class WorkerSettings:
    """What a worker is run with, see the options; ``number`` is None for one that runs alone."""

    topology: str
    metrics: tuple[str, int] | None
    chosen: bool
    page: bool | None
    raw_metrics: bool
    raw_log: bool
    memory_limit: int | None
    witness: Path | None
    member: str | None
    log_level: str
    number: int | None = None

    def work(self) -> NoReturn:
        """Be the worker, and end the process."""
        configure_logging(self.log_level, self.number, self.topology)
        log.info("%s", kernel.WAY)
        limit = self.memory_limit
        log.info("memory limit: %s", "off" if limit is None else format_size(limit))
        loaded = load_or_exit(self.topology)
        file = None if self.witness is None else WitnessFile(self.witness, loaded.name)

        def make(topology: Topology) -> Worker:
            worker = Worker(topology, memory_limit=limit, witness=file, member=self.member)
            worker.observation.losses = Losses(topology) if self.raw_log else None
            return worker

        run_worker(loaded, make, self._listen(loaded))

    def _listen(self, topology: Topology) -> Callable[[], Endpoint] | None:
        if self.metrics is None:
            return None
        shown = Shown(topology) if _has_page(self.page, self.metrics[0]) else None
        further = 0 if self.chosen else _FURTHER_PORTS
        return partial(Endpoint, *self.metrics, self.raw_metrics, further, shown)


@dataclass(frozen=True)
class ProcessShare:
    """The work of one of several processes."""

    whole: WorkerSettings
    processes: int

    def check(self) -> None:
        """Raise click.UsageError if the settings do not go round."""
        try:
            last = self.of(self.processes)
            _member_name(last.member)
        except ValueError as error:
            raise click.UsageError(f"--member: with the number of the process {error}") from None
        if last.metrics is not None and last.metrics[1] > _LAST_PORT:
            raise click.UsageError(
                f"--metrics: {self.processes} processes need ports up to {last.metrics[1]}"
            )

    def of(self, number: int) -> WorkerSettings:
        """The settings of process ``number``, from 1 on."""
        one = self.whole
        metrics, member, limit = one.metrics, one.member, one.memory_limit
        if metrics is not None and one.chosen and metrics[1]:
            metrics = metrics[0], metrics[1] + number - 1
        return replace(
            one,
            metrics=metrics,
            member=None if member is None else f"{member}-{number}",
            memory_limit=None if limit is None else limit // self.processes,
            number=number,
        )

    def __call__(self, number: int) -> NoReturn:
        """Be this worker, and end the process."""
        self.of(number).work()


def _has_page(wanted: bool | None, host: str) -> bool:
    """Whether a page is served on ``host``: if nobody has said so, only where nobody else can ask for it."""
    if wanted is not None:
        return wanted
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _WithPath(logging.Formatter):
    """Lines with the path of the topology in the commands that they name."""

    def __init__(self, line: str, path: str) -> None:
        super().__init__(line)
        self._path = path

    def format(self, record: logging.LogRecord) -> str:
        """See ``logging.Formatter.format``."""
        return with_path(super().format(record), self._path)


def configure_logging(level: str, number: int | None = None, path: str = "TOPOLOGY") -> None:
    """Log to standard error; libraries only when something is wrong, and not the same again and again.

    With the ``number`` of the process in each line, if there are several. ``path`` is that of the topology.
    """
    name = "%(name)s" if number is None else f"%(name)s[{number}]"
    line = f"%(asctime)s %(levelname)s {name}: %(message)s"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_WithPath(line, path))
    # First, because the other one may put the arguments into the text.
    handler.addFilter(HiddenOffsets())
    handler.addFilter(Repeats())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("eventveil").setLevel(level.upper())


def run_worker(
    topology: Topology,
    make: Callable[[Topology], Worker],
    listen: Callable[[], Endpoint] | None = None,
    doubt_seconds: float = PATIENCE_SECONDS,
) -> NoReturn:
    """Check the topics, run a worker, end the process: 0 after a graceful stop, 1 after a failure, 75 if
    that was the memory limit.

    ``listen`` makes the endpoint of metrics and health and may raise EventveilError; None means no endpoint.
    Mistakes of topics that stay the same for ``doubt_seconds`` are a failure; only tests pass another number.
    """
    _raise_file_limit()
    allocator.settle()
    if os.getpid() == _FIRST_PROCESS:
        signal.signal(signal.SIGTERM, _end_at_once)
    try:
        # First of all, so that health checks are answered while the worker waits for its brokers.
        endpoint = None if listen is None else listen()
        if endpoint is not None:
            log.info("metrics and health on %s", endpoint.description)
            if endpoint.page is not None:
                log.info("page of the releases on %s", endpoint.page)
        failure: BaseException | None = _mistakes_that_stay(topology, doubt_seconds)
        if failure is None:
            check_file(topology, Cluster(topology.kafka))
            failure = asyncio.run(_work(topology, make, endpoint))
    except (KafkaException, EventveilError) as error:
        failure = error
    if failure is None:
        log.info("stopped")
    else:
        log.error("stopped: %s", words_of(failure))
    logging.shutdown()
    # Threads inside librdkafka may still wait for a broker that is gone; what matters is committed.
    os._exit(_status(failure))


def _end_at_once(_: int, __: object) -> None:
    """End before there is a worker; there is nothing to finish yet."""
    log.info("stopped")
    logging.shutdown()
    os._exit(0)


def _status(failure: BaseException | None) -> int:
    if failure is None:
        return 0
    return EXIT_MEMORY if isinstance(failure, MemoryLimitReached) else EXIT_FAILED


def _raise_file_limit() -> None:
    """Allow all open files that the system grants: each owned partition has a producer with its sockets."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _mistakes_that_stay(topology: Topology, seconds: float) -> EventveilError | None:
    """What is wrong with the topics, if it stays so: the broker that was asked may know no better."""
    patience, pause, told = Patience(seconds), _FIRST_PAUSE, ""
    began = time.monotonic()
    while (found := check_surroundings(topology)) is not None:
        if (refusal := patience.refusal(found)) is not None:
            return refusal
        if str(found) != told:
            log.warning("start delayed, retrying for up to %.0f s: %s", seconds, found)
            began = time.monotonic()
        else:
            log.info("start still delayed after %.0f s, for the same reason", time.monotonic() - began)
        told = str(found)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return None


def check_surroundings(topology: Topology) -> Unsettled | None:
    """What is wrong with the topics, if anything, by what a broker says now.

    A connection that is lost while a broker answers leaves a doubt too. Raises EventveilError, also if no
    broker answers at all, and KafkaException if a right is missing.
    """
    try:
        mistakes = mistakes_of_topics(topology, Cluster(topology.kafka))
    except KafkaException as error:
        if is_denied(error.args[0]):
            raise
        what = f"they cannot be inspected: {words_of(error)}"
        return Unsettled("topics", what, EventveilError(f"topics: {what}. Are all brokers up?"))
    if mistakes:
        what = "; ".join(mistakes)
        return Unsettled("topics", what, EventveilError(f"{what}. See `eventveil topics TOPOLOGY`"))
    return None


def mistakes_of_topics(topology: Topology, cluster: Cluster) -> list[str]:
    """What is missing of the topics of a topology, and set wrongly. Raises EventveilError, KafkaException."""
    inspection = inspect_topics(topology, cluster)
    return [*absent(inspection.missing, inspection.meant), *inspection.mistakes]


def _watch_surroundings(topology: Topology, observation: Observation) -> Watch:
    """Look at the topics while the worker runs; they were as they should be when it started."""
    found: list[Cluster] = []

    def inspect() -> list[str]:
        if not found:
            found.append(Cluster(topology.kafka))
        return mistakes_of_topics(topology, found[0])

    return Watch("surroundings", Surroundings(inspect, observation).look, _cannot_look)


def _cannot_look(error: BaseException) -> None:
    log.error("topic settings are no longer checked, because the check failed: %r", error)


async def _work(
    topology: Topology, make: Callable[[Topology], Worker], endpoint: Endpoint | None
) -> BaseException | None:
    worker = make(topology)
    if endpoint is not None:
        endpoint.watch(worker.observation)
    _watch_surroundings(topology, worker.observation).start()
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

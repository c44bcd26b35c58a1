"""``eventveil replay``: releases over history, from a file or a topic, into files."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import ceil

import click
from click.core import ParameterSource

from eventveil.cli.files import refuse_existing
from eventveil.cli.loading import EXIT_UNWELL, load_or_exit
from eventveil.cli.options import TimeOption, memory_limit
from eventveil.cli.progress import progress
from eventveil.cli.words import exit_on_error
from eventveil.decoding.rules import Reason
from eventveil.describe.guarantee import consecutive, number
from eventveil.kinds.registry import kind_of
from eventveil.mechanisms.registry import find
from eventveil.model.timeline import format_rfc3339, start_of, timestamp_of
from eventveil.model.topology import Stream, Topology
from eventveil.privacy.discovery import test_of
from eventveil.process import allocator
from eventveil.process.memory import MemoryLimit
from eventveil.replay.errors import StreamErrors
from eventveil.replay.files import open_file
from eventveil.replay.inputs import Input
from eventveil.replay.outputs import Paths, open_outputs
from eventveil.replay.rekeying import open_topic
from eventveil.replay.run import Replay, ReplaySpan
from eventveil.replay.run import replay as start_replay
from eventveil.replay.values import ValueReplay, replay_values
from eventveil.tasks.values import READ

_TOPIC = "topic:"
#: From this many empty timestamps before the first event on, a replay says how to begin later.
_MANY_EMPTY = 100
#: More timestamps than this are announced before they are released.
_MANY = 1_000_000
#: One looks for the first event at one release in this many.
_LOOK = 1000
_MORE_MEMORY = (
    "Raise the limit, replay fewer streams at a time (--stream), or replay a topic: a file keeps every "
    "timestamp open to its end"
)


@click.command()
@click.argument("topology")
@click.option(
    "--input", "source", metavar="FILE|topic:NAME", required=True,
    help="One JSON event per line, or one event per row of a Parquet or Arrow file; or a source topic, up to "
    "the end that it has now.",
)  # fmt: skip
@click.option(
    "--output", metavar="FILE", required=True,
    help="The releases, as the sink would get them; - is standard output.",
)  # fmt: skip
@click.option(
    "--from", "start", type=TimeOption(), metavar="TIME",
    help="Where the first timestamp begins; default: the origin. It must be where a timestamp begins.",
)  # fmt: skip
@click.option(
    "--to", "end", type=TimeOption(last=True), metavar="TIME|last",
    help="The last timestamp is the last one that ends at or before TIME; with `last`, the last one that has "
    "an event, so that the length reveals raw data. Value streams have no timestamps and end with their "
    "input.",
)  # fmt: skip
@click.option("--stream", "only", multiple=True, help="Replay this stream only; may be given repeatedly.")
@click.option("--seed", type=int, help="Reproducible noise; anybody who knows the seed can remove it.")
@click.option(
    "--truth",
    metavar="FILE",
    help="Write the true counts too, also before bounding, and print errors: raw data.",
)
@click.option("--ledger", metavar="FILE", help="Also write what each timestamp spent.")
@click.option(
    "--show-drops",
    is_flag=True,
    help="Print how many events counted, and how many did not and why: raw data.",
)
@memory_limit
@click.option(
    "--processes", type=click.IntRange(min=1), metavar="N",
    help="Count the partitions of a topic in N processes at most; default: one per core, if there are enough "
    "events. The releases are the same.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace files that exist.")
def replay(
    topology: str,
    source: str,
    output: str,
    start: int | None,
    end: int | None,
    only: tuple[str, ...],
    seed: int | None,
    truth: str | None,
    ledger: str | None,
    show_drops: bool,
    memory_limit: int | None,
    processes: int | None,
    force: bool,
) -> None:
    """Release the streams of TOPOLOGY over history, with a fresh budget.

    A topic is judged by the live rules, and the streams that read it are replayed. A file needs no broker:
    all streams read it, its events may come in any order, and none is late or too far ahead. The releases
    are sorted by (timestamp, stream); timestamps are numbered from the origin.

    Value streams are replayed separately from counts. They give one reading for each value, in the order of
    the lines, or of the offsets in each partition.

    A replay is a new release: its epsilon adds to that of every other over the same people.

    Exit status 3 if no event was counted for one of the streams; its releases are noise, and are written.
    """
    context = click.get_current_context()
    given_to = context.get_parameter_source("end") is not ParameterSource.DEFAULT
    paths, limit = Paths(output, ledger, truth), MemoryLimit(memory_limit, _MORE_MEMORY)
    written = {"--output": paths.output, "--ledger": paths.ledger, "--truth": paths.truth}
    refuse_existing(written, force, read=None if source.startswith(_TOPIC) else source)
    loaded = load_or_exit(topology)
    allocator.settle()
    running_since = time.time_ns() // 1_000_000
    with exit_on_error("replay", OSError):
        given = _open_input(loaded, source)
        if _is_of_values(loaded, given.topic, only):
            if start is not None or end is not None:
                raise click.UsageError("a value stream has no timestamps: leave out --from, and --to TIME")
            if (processes or 1) > 1:
                raise click.UsageError("value streams are read in one process: leave out --processes")
            values = replay_values(loaded, given, only=only, seed=seed)
            values.on_chunk = lambda: limit.check(dict)
            sys.exit(0 if _replay_values(values, given, paths, seed, show_drops) else EXIT_UNWELL)
        if not given_to:
            raise click.UsageError("Missing option '--to'.", context)
        if given.topic is None and (processes or 1) > 1:
            raise click.UsageError("a file cannot be divided among processes: leave out --processes")
        try:
            running = start_replay(
                loaded, given, start=start, end=end, only=only, seed=seed, processes=processes,
                unbounded=truth is not None, now=running_since,
            )  # fmt: skip
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        _announce(running, given, paths, start=start, seeded=seed is not None)
        _tell_unfinished(running, running_since)
        errors = _write(running, given, paths, limit)
    _conclude(running, given, running_since, data_decided=end is None, show_drops=show_drops)
    for name, one in errors.items():
        for sentence in one.told():
            _note(f"raw data, not to be published: {name}: {sentence}")
    if not all(one.last_counted for one in running.releasing.values()):
        sys.exit(EXIT_UNWELL)


def _is_of_values(topology: Topology, topic: str | None, only: tuple[str, ...]) -> bool:
    """Whether value streams are to be replayed, and not counts. Raises UsageError if it would be both."""
    values = {stream.name: stream for stream in topology.readings}
    if topic is not None and not only:
        return topic in topology.value_sources
    chosen = set(only) or {stream.name for stream in topology.streams} | set(values)
    if chosen & set(values) and not chosen <= set(values):
        raise click.UsageError(
            "value streams and counts cannot be replayed together; select one kind with --stream "
            f"({', '.join(values)} are of values)"
        )
    for name in only:
        if name in values and topic not in {None, values[name].source.topic}:
            raise click.UsageError(f"stream {name} reads topic {values[name].source.topic}, not {topic}")
    return chosen <= set(values)


def _replay_values(
    running: ValueReplay, given: Input, paths: Paths, seed: int | None, show_drops: bool
) -> bool:
    """Whether every stream had a value."""
    for stream in running.streams:
        _announce_epsilon(stream.name, stream.mechanism.epsilon_text, "one value")
    _announce_input([one.source.topic for one in running.streams], given, paths, "values", seed is not None)
    begun = time.monotonic()
    with open_outputs(paths) as outputs:
        for replayed in running:
            outputs.write_values(replayed)
    _tell_speed(running.events, begun)
    for name, outcomes in running.outcomes.items():
        if not outcomes[READ]:
            _note(f"warning: no value could be read for {name}{'; all readings are of 0' * bool(outcomes)}")
            if outcomes:
                _note(f"raw data, not to be published: the reasons are {', '.join(outcomes)}")
        if show_drops:
            counts = ", ".join(f"{count} {outcome}" for outcome, count in _by_count(outcomes)) or "no event"
            _note(f"raw data, not to be published: {name} had {counts}; what was not read is 0 in its place")
    return all(outcomes[READ] for outcomes in running.outcomes.values())


def _open_input(topology: Topology, source: str) -> Input:
    if source.startswith(_TOPIC):
        topic = source.removeprefix(_TOPIC)
        if not topic:
            sources = ", ".join(topology.topics_of_events)
            raise click.UsageError(f"--input {source} lacks the name of the topic: {sources}")
        return open_topic(topology, topic)
    pointers = {stream.source.value for stream in topology.readings}
    for stream in topology.streams:
        pointers |= stream.source.pointers
    try:
        return open_file(source, pointers)
    except ValueError as error:
        raise click.UsageError(f"--input: {error}") from None


def _announce(running: Replay, given: Input, paths: Paths, *, start: int | None, seeded: bool) -> None:
    for stream in running.streams:
        if not kind_of(stream).raw_events:
            _note(f"the reports of {stream.name} were private before they were sent: a replay adds nothing")
            if start is not None:
                _note(
                    f"{stream.name}: reports before --from are missing; if they set its threshold, it is "
                    "different or unset here, and sums are not used"
                )
        else:
            how, delta, epsilon = (
                stream.counts.discover,
                stream.mechanism.delta,
                stream.mechanism.epsilon_text,
            )
            if how is not None:
                epsilon, delta = number(stream.epsilon), how.delta
            beside = "" if delta is None else f" with delta {float(delta):.3g}"
            _announce_epsilon(stream.name, epsilon + beside, f"any {_covered(stream)}")
    if start is not None and any(kind_of(stream).raw_events for stream in running.streams):
        _note(
            "--from starts with a fresh budget: epsilons of adjacent ranges add up in windows that span both"
        )
    _announce_input([one.source.topic for one in running.streams], given, paths, "counts", seeded)
    for stream in running.streams:
        _note(_range_of(running.span, stream, from_origin=start is None))


def _range_of(span: ReplaySpan, stream: Stream, *, from_origin: bool) -> str:
    """What is released of a stream: from where on, and how many timestamps if that is known."""
    rules, first = stream.timeline, span.first[stream.name]
    begins = format_rfc3339(start_of(rules, first)) + " (timeline.origin)" * from_origin
    if span.last is None:
        until_now = timestamp_of(rules, time.time_ns() // 1_000_000) - first
        many = (
            f", up to {until_now:,} timestamps until now; --from TIME leaves out those before the first event"
        )
        told = f"{stream.name} is released from {begins} to the timestamp of its last event"
        return told + many * (until_now > _MANY)
    last = span.last[stream.name]
    if last < first:
        return f"no timestamp of {stream.name} ends by then"
    released = f"{last - first + 1:,} timestamp{'s' * (last > first)}"
    return (
        f"{stream.name} is released from {begins} to {format_rfc3339(start_of(rules, last + 1))}: {released}"
    )


def _tell_unfinished(running: Replay, now: int) -> None:
    """Warn of timestamps in the range of --to that end after ``now`` (epoch ms)."""
    first, last = running.span.first, running.span.last
    for stream in running.streams:
        rules = stream.timeline
        unfinished = max(timestamp_of(rules, now), first[stream.name])
        if last is not None and unfinished <= last[stream.name]:
            begins = format_rfc3339(start_of(rules, unfinished))
            _note(
                f"warning: timestamps of {stream.name} from {unfinished} on are not over yet, so events of"
                f" them are missing; --to {begins} leaves them out"
            )


def _announce_epsilon(stream: str, epsilon: str, over: str) -> None:
    _note(
        f"a replay is a new release: for {stream} it adds epsilon {epsilon} "
        f"over {over} to all that was released about the same people"
    )


def _announce_input(sources: Iterable[str], given: Input, paths: Paths, what: str, seeded: bool) -> None:
    if seeded:
        _note("the noise is seeded: anybody who knows the seed can remove it. Do not publish this release")
    topics = sorted(set(sources))
    if len(topics) > 1:
        _note(f"every stream reads the whole file, whether made for {', '.join(topics)}; see --stream")
    if paths.truth is not None:
        _note(f"{paths.truth} will hold true {what}: raw data, as private as the events")
    for warning in given.warnings:
        _note(f"warning: {warning}")


def _covered(stream: Stream) -> str:
    window = stream.mechanism.window
    level = find(stream.mechanism.kind).level
    if level == "event":
        return "one timestamp"
    return f"horizon of {window} timestamps" if level == "user" else consecutive(window)


def _write(running: Replay, given: Input, paths: Paths, limit: MemoryLimit) -> dict[str, StreamErrors]:
    """Write all releases; the errors by stream, where the truth is wanted and it is counts."""
    begun = time.monotonic()
    wanted = [stream for stream in running.streams if paths.truth is not None and kind_of(stream).raw_events]
    errors = {stream.name: StreamErrors(len(stream.counts.labels)) for stream in wanted}
    with open_outputs(paths) as outputs, _watched(running, given, limit) as advance:
        for released in running:
            outputs.write(released)
            if released.stream.name in errors:
                errors[released.stream.name].add(released)
            advance()
    _tell_speed(running.events, begun)
    return errors


def _tell_speed(events: int, begun: float) -> None:
    seconds = time.monotonic() - begun
    told = f"{events:,} events in {seconds:.1f} s, {events / seconds:,.0f} a second"
    _note(f"raw data, not to be published: {told}")


@contextmanager
def _watched(running: Replay, given: Input, limit: MemoryLimit) -> Iterator[Callable[[], None]]:
    """Show progress on a terminal, and check the limit; the function to call after each release."""
    last, first = running.span.last, running.span.first
    expected = "" if last is None else f" of {sum(max(0, last[name] - first[name] + 1) for name in first):,}"
    released = 0
    silent = list(running.streams)
    unit = "bytes" if given.topic is None else "offsets"
    with progress(f"reading ({unit})", lambda: f"{released:,}{expected} released") as told:

        def check() -> None:
            limit.check(running.held, running.elsewhere)
            told(given.done, given.total or 0)

        def advance() -> None:
            nonlocal released
            if released % _LOOK == 0:
                silent[:] = [one for one in silent if not _tell_empty(running, one)]
            released += 1
            told(given.done, given.total or 0)

        running.on_chunk = check
        yield advance
        for one in silent:
            _tell_empty(running, one)


def _tell_empty(running: Replay, stream: Stream) -> bool:
    """Say that many timestamps are released before the first event; whether there is one.

    Another partition may still have an earlier one.
    """
    first = running.releasing[stream.name].first_counted
    empty = first - running.span.first[stream.name]
    if empty >= _MANY_EMPTY:
        begins = format_rfc3339(start_of(stream.timeline, first))
        _note(
            f"raw data, not to be published: the first event of {stream.name} so far is in the timestamp that"
            f" begins at {begins}; the {empty:,} timestamps before it are released too, unless --from leaves"
            " them out"
        )
    return first > 0


def _by_count(outcomes: Counter[str]) -> list[tuple[str, int]]:
    """The most frequent first, then by name: the order in which records were judged says nothing."""
    return sorted(outcomes.items(), key=lambda one: (-one[1], one[0]))


def _conclude(
    running: Replay, given: Input, running_since: int, *, data_decided: bool, show_drops: bool
) -> None:
    for stream in running.streams:
        last, outcomes = running.releasing[stream.name].last_counted, running.outcomes[stream.name]
        told = Counter({_words(outcome, given, stream): count for outcome, count in outcomes.items()})
        counts = ", ".join(f"{count} {outcome}" for outcome, count in _by_count(told)) or "no event"
        if last == 0:
            _note(f"warning: no event was counted for {stream.name}; raw data, not to be published: {counts}")
            if given.topic is not None and outcomes:
                _note("`eventveil doctor` says what to change in the file")
            if outcomes[Reason.BEFORE_ORIGIN] or outcomes[Reason.BEFORE_START]:
                _note("times that are numbers are epoch milliseconds: in seconds they would lie in 1970")
        elif data_decided:
            ends = format_rfc3339(start_of(stream.timeline, last + 1))
            _note(f"the raw data decided the end: {stream.name} ends with timestamp {last}, at {ends}")
            if given.topic is not None and start_of(stream.timeline, last + 1) > running_since:
                before = format_rfc3339(start_of(stream.timeline, last))
                _note(
                    f"warning: timestamp {last} was not over when the topic was read, so its truth lacks"
                    f" events; --to {before} leaves it out"
                )
        for sentence in _searched(running, stream):
            _note(sentence)
        if show_drops:
            after = "" if data_decided or given.topic is None else ". These numbers include events after --to"
            _note(f"raw data, not to be published: {stream.name} read {counts}{after}")


def _searched(running: Replay, stream: Stream) -> Iterator[str]:
    """What became of the search for columns, where there is one."""
    how, releasing = stream.counts.discover, running.releasing[stream.name]
    if how is None:
        return
    window = stream.mechanism.window
    test = test_of(how.epsilon, how.delta, stream.sensitivity, window)
    enough = f"about {test.threshold:,} events in a block of {window} timestamps"
    if releasing.found:
        yield f"{stream.name}: columns found at the end: {len(releasing.found)}; a column needs {enough}"
    else:
        yield (
            f"warning: {stream.name} has found no column, so all events are in {stream.counts.labels[0]}: a"
            f" column needs {enough}, {ceil(test.threshold / window):,} a timestamp"
        )
    if largest := releasing.largest_missed:
        yield f"raw data, not to be published: the largest column that a block did not find had {largest:,}"


def _words(outcome: str, given: Input, stream: Stream) -> str:
    """An outcome in the words of a replay: without append times the only limits are those of the range."""
    if outcome == Reason.BEFORE_START:
        return "before-range"
    if outcome == Reason.TOO_FAR_AHEAD and given.is_limited_by_range(stream):
        return "after-range"
    return outcome


def _note(text: str) -> None:
    click.echo(f"eventveil replay: {text}", err=True)

"""``eventveil advise``: which interval, window, kind and bound suit given events."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from tempfile import TemporaryDirectory
from typing import Any

import click

from eventveil.advise import report
from eventveil.advise.choices import Question
from eventveil.advise.page import page
from eventveil.advise.planning import plan_of
from eventveil.advise.reading import ReadEvents, read_events, without_apart
from eventveil.advise.searching import Findings, search
from eventveil.advise.tally import Tally
from eventveil.advise.trials import Runner, in_processes, perform
from eventveil.advise.writing import TopologyPlan, listed_apart, topology_text
from eventveil.cli.files import refuse_existing, write_topology
from eventveil.cli.loading import is_topology
from eventveil.cli.progress import progress
from eventveil.cli.subjects import AdviceSubject, check_fields, of_file, of_topology, with_found_columns
from eventveil.cli.words import exit_on_error
from eventveil.decoding.rules import Reason
from eventveil.describe.guarantee import describe
from eventveil.mechanisms.registry import find, of_stream
from eventveil.model.errors import EventveilError
from eventveil.model.timeline import format_rfc3339
from eventveil.model.topology import Stream
from eventveil.privacy.gaussian import LARGEST_DELTA, LARGEST_EPSILON, LEAST_DELTA
from eventveil.privacy.noise import SystemNoise
from eventveil.process.atomic_file import OWNER_ONLY, appearing
from eventveil.replay.processes import cores
from eventveil.topology.document import Scalar
from eventveil.topology.loading import load_text
from eventveil.topology.periods import DAY, HOUR
from eventveil.topology.problems import START
from eventveil.topology.scalars import DELTAS, Rational, UnfitError

_RECOMMENDED = "Recommended by `eventveil advise`; errors were measured on the events that it was given."
_NEW = ("Before it runs: topics, lateness and max_ahead are yours to set, and the columns must be public.",)
_CARRIED = (
    "The source, kafka, registry, topics and the times for late events are those of the given file. Name,",
    "sink and dead_letter are new, so that it can run beside that file. Yours to check before it runs: that",
    "interval, contributions, window and kind suit your readers; lateness and max_ahead; further settings of",
    "the sink, budget and other streams, which are not here; paths, if it moved; that columns are public.",
)
_SPANS = {"hour": HOUR, "day": DAY, "week": 7 * DAY}
_SHOWN = 12
_EPSILON = Rational(1_000_000)
_DELTA = Rational(1, LEAST_DELTA, 31, DELTAS)


class _Percent(click.ParamType):
    """A part of a count, such as 5%, as a number such as 0.05."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Fails, which is wrong usage, for anything else."""
        try:
            part = float(str(value).removesuffix("%").strip()) / 100
        except ValueError:
            part = -1
        if not 0 < part <= 10:
            self.fail(f"{value!r} should be a number of percent, such as 5%", param, ctx)
        return part


def _epsilon(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else _EPSILON.parse(Scalar(START, value)).text
    except UnfitError as unfit:
        raise click.BadParameter(f"{value!r} should be {unfit.expected}") from None


def _delta(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        delta = _DELTA.parse(Scalar(START, value))
    except UnfitError as unfit:
        raise click.BadParameter(f"{value!r} should be {unfit.expected}") from None
    if delta.value > LARGEST_DELTA:
        raise click.BadParameter(
            f"{value!r} should be at most {float(LARGEST_DELTA):g}, and far below 1/n for n users"
        )
    return delta.text


@click.command()
@click.argument("subject", metavar="EVENTS|TOPOLOGY")
@click.option(
    "--input", "source", metavar="FILE|topic:NAME",
    help="The events, if a TOPOLOGY says where their user, column and time are; else EVENTS is the file.",
)  # fmt: skip
@click.option("--stream", "only", help="The stream of TOPOLOGY, if it has several.")
@click.option(
    "--user", default="/user", show_default=True, metavar="POINTER",
    help="Where the user is in an event of EVENTS.",
)  # fmt: skip
@click.option(
    "--column", default="/column", show_default=True, metavar="POINTER", help="Where the column is."
)
@click.option("--time", default="/time", show_default=True, metavar="POINTER", help="Where the time is.")
@click.option(
    "--columns", metavar="A,B,...|FILE|found",
    help="The columns: a list, or a file with one per line; `found`, the default for EVENTS: those in the"
    " events, which reveals which columns exist.",
)  # fmt: skip
@click.option(
    "--total", type=click.Choice(["hour", "day"]), default="day", show_default=True,
    help="The totals that you want: per column for every hour, or every day.",
)  # fmt: skip
@click.option(
    "--epsilon", metavar="NUMBER", callback=_epsilon,
    help="The budget of a user over --protect; default: as in TOPOLOGY, or 1.",
)  # fmt: skip
@click.option(
    "--delta", metavar="NUMBER", callback=_delta,
    help="Try Gaussian noise too: the probability that the guarantee of epsilon fails for a user, far below"
    " 1/n for n users, such as 1e-9. Default: pure epsilon alone.",
)  # fmt: skip
@click.option(
    "--protect",
    type=click.Choice([*_SPANS]),
    help="The period the budget covers; default: as in TOPOLOGY, or a day.",
)
@click.option(
    "--accuracy", type=_Percent(), default="5%", show_default=True, help="The error that is good enough."
)
@click.option(
    "--contributions", type=click.IntRange(1, 1_000_000), metavar="N",
    help="How many events of a user count per timestamp; default: the bound that does best.",
)  # fmt: skip
@click.option("--output", metavar="FILE", help="Write the recommended topology; - is standard output.")
@click.option(
    "--html", metavar="FILE", help="Write the full report, with pictures, as one HTML page: raw data."
)
@click.option("--seed", type=int, help="Reproducible noise: the same advice every time.")
@click.option("--processes", type=click.IntRange(min=1), metavar="N", help="Default: one per core.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
def advise(
    subject: str,
    source: str | None,
    only: str | None,
    user: str,
    column: str,
    time: str,
    columns: str | None,
    total: str,
    epsilon: str | None,
    delta: str | None,
    protect: str | None,
    accuracy: float,
    contributions: int | None,
    output: str | None,
    html: str | None,
    seed: int | None,
    processes: int | None,
    force: bool,
) -> None:
    """Try topologies on given events and recommend one.

    EVENTS is a file with one JSON event per line, or a Parquet or Arrow file. Mechanisms are run over its
    counts with several intervals, windows, contribution bounds and kinds. Errors are those of the totals
    asked for, in percent of all events, including those that bounding leaves out. The output is raw data.
    """
    refuse_existing({"--output": output, "--html": html}, force)
    with exit_on_error("advise", OSError):
        known = of_topology(subject, source, only) if source or is_topology(subject) else None
        chosen = known or of_file(subject, user, column, time)
        if known is None:
            check_fields(chosen, _note)
        stream = with_found_columns(chosen, columns if known else columns or "found")
        if stream.counts.discover is not None:
            raise EventveilError(
                f"stream {stream.name} finds its columns in the data, and advice needs a list: give the"
                " stream columns in a copy of the file, such as those of its releases"
            )
        question = _question(
            stream, known, _SPANS[total], epsilon, delta, protect, accuracy, contributions, seed
        )
        found = _read(chosen, stream)
        if not len(found.events.times):
            hint = "; see --columns" * (found.outcomes[Reason.UNKNOWN_COLUMN] > 0)
            raise EventveilError(f"no event can be counted: {report.outcomes(found.outcomes)}{hint}")
        read = without_apart(found)
        origin = _origin(known, read)
        begins = _begins(origin, read, question.unit)
        tally = Tally(read.events, len(question.labels), begins, question.unit)
        with in_processes(processes or cores()) as run:
            findings = _search(question, tally, run)
        _answer(findings, read, chosen, stream, origin, output, html)


def _question(
    stream: Stream,
    known: AdviceSubject | None,
    unit: int,
    epsilon: str | None,
    delta: str | None,
    protect: str | None,
    accuracy: float,
    bound: int | None,
    seed: int | None,
) -> Question:
    mechanism = stream.mechanism
    window = mechanism.window if find(mechanism.kind, mechanism.options).level == "w-event" else 0
    text = epsilon or (mechanism.epsilon_text if known else "1")
    if delta is not None and Fraction(text) > LARGEST_EPSILON:
        raise EventveilError(
            f"--delta is for epsilon of at most {LARGEST_EPSILON:,}, not {text}; leave it out"
        )
    span = _SPANS[protect] if protect else window * stream.timeline.interval if known and window else DAY
    return Question(
        labels=stream.counts.labels,
        unit=unit,
        epsilon=text,
        protect=span,
        accuracy=accuracy,
        bound=bound,
        seed=seed,
        adjacency=mechanism.adjacency,
        rollable=stream.counts.column_type == "string",
        delta=delta,
    )


def _origin(known: AdviceSubject | None, read: ReadEvents) -> int:
    """That of the topology, or the beginning of the year of the first event.

    A topology is public: the day or hour of a single event is not to be in it.
    """
    if known is not None:
        return known.stream.timeline.origin
    year = datetime.fromtimestamp(int(read.events.times.min()) // 1000, UTC).year
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1000


def _begins(origin: int, read: ReadEvents, unit: int) -> int:
    """Where the first total begins."""
    return origin + (int(read.events.times.min()) - origin) // unit * unit


def _read(chosen: AdviceSubject, stream: Stream) -> ReadEvents:
    source = chosen.open()
    with progress("reading events") as told:
        return read_events(stream, source, lambda: told(source.done, source.total or 0))


def _search(question: Question, tally: Tally, run: Runner) -> Findings:
    with progress("trying choices") as told:
        for done, expected, found in search(question, tally, run):
            findings = found
            told(done, expected)
    return findings


def _answer(
    findings: Findings,
    read: ReadEvents,
    chosen: AdviceSubject,
    stream: Stream,
    origin: int,
    output: str | None,
    html: str | None,
) -> None:
    """Say what was found, and write what was asked for."""
    remarks = (_RECOMMENDED, *(_NEW if chosen.file is None else _CARRIED))
    plan = chosen.carried(plan_of(findings, stream, chosen.name, origin, remarks))
    promise = _promise(plan, chosen.file)
    if output is not None:
        for path in write_topology(output, plan):
            _note(f"wrote {path}")
        if findings.tally.origin != origin:
            _note(_replaying(findings.tally.origin, origin))
    if html is not None:
        whole = perform(findings.trial(findings.best, 0, whole=True))
        text = page(findings, read, topology_text(plan), promise, whole)
        with appearing(html, OWNER_ONLY) as file:
            file.write(text.encode())
        _note(f"wrote {html}, which is raw data")
    for line in _lines(findings, read, promise):
        click.echo(line, err=output == "-")


def _replaying(begins: int, origin: int) -> str:
    """How to replay the events, which do not begin at the origin of the file."""
    time = format_rfc3339(begins)
    if begins > origin:
        return f"to replay these events with the topology, add --from {time}: there are none before that"
    return f"these events are older than its origin: to replay them, use a copy with the origin {time}"


def _lines(findings: Findings, read: ReadEvents, promise: Sequence[str]) -> Iterator[str]:
    yield from _paragraph("Note", [report.LEAKS, report.RAW])
    rows = report.rows(findings)
    unit = report.a_unit(findings.question.unit)
    yield from _paragraph("Events", [report.events(findings, read)])
    yield f"Errors of the total of {unit}, in percent of all events; `per user`: events that count of each"
    yield from (f"  {line}" for line in report.table(rows[:_SHOWN]))
    if len(rows) > _SHOWN:
        yield f"  and {len(rows) - _SHOWN} more, which --html shows"
    yield ""
    yield from _paragraph("Tried", [report.tried(findings)])
    yield from _paragraph("Recommended", report.recommendation(findings))
    yield from _paragraph("What it promises", promise)
    yield from _paragraph(f"Out of reach at epsilon {findings.question.epsilon}", report.impossible(findings))


def _paragraph(head: str, lines: Iterable[str]) -> Iterator[str]:
    yield head
    yield from (f"  {line}" for line in lines)
    yield ""


def _promise(plan: TopologyPlan, file: str | None) -> tuple[str, ...]:
    """What `eventveil check` says of the recommended topology, which has to be valid for that.

    Paths in it are relative to ``file``, from which it was made.
    """
    with TemporaryDirectory() as folder:
        *_, last = write_topology(os.path.join(folder, "topology.yaml"), plan)
        text = topology_text(plan, last if listed_apart(plan.columns) else None)
        (stream,) = load_text(file or last, text, os.environ).streams
    mechanism = of_stream(stream, SystemNoise())
    return (*describe(stream, mechanism.guarantee), *mechanism.notes)


def _note(text: str) -> None:
    click.echo(f"eventveil advise: {text}", err=True)

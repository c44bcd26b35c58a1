"""From what is known of the events, and the best choice, to the topology that is recommended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eventveil.advise.choices import options_as_text
from eventveil.advise.searching import OTHER, Findings
from eventveil.advise.writing import TopologyPlan, rules_of
from eventveil.model.topology import Stream


def plan_of(
    findings: Findings, stream: Stream, name: str, origin: int, remarks: Sequence[str]
) -> TopologyPlan:
    """The topology of the best choice for events that are where ``stream`` has them, as a new file has it.

    ``origin`` is that of the file, in epoch milliseconds. It may be earlier than the first total.
    """
    choice, source, question = findings.best, stream.source, findings.question
    unknown = stream.counts.unknown
    if unknown == "column" and stream.counts.unknown_column is not None:
        unknown_label = question.labels[stream.counts.unknown_column]
        unknown = unknown_label if unknown_label in findings.labels(choice) else OTHER  # type: ignore[assignment]
    return TopologyPlan(
        name=name,
        stream=stream.name,
        topic=source.topic_of_events,
        user=source.user,
        column=source.column,
        time=source.time,
        interval=choice.interval,
        origin=origin,
        columns=findings.labels(choice),
        kind=choice.kind,
        epsilon=question.epsilon,
        window=choice.window(question),
        unknown=OTHER if choice.rolled else unknown,
        contributions=choice.bound,
        per_column=choice.per_column,
        user_type=source.user_type,
        column_type="string" if choice.rolled else stream.counts.column_type,
        # With repartition it is the stage that keys the records.
        partitioner=source.partitioner if source.raw is None else None,
        adjacency=question.adjacency,
        options=options_as_text(question, choice),
        minimum=0 if choice.clipped else None,
        rules=rules_of(source, findings.labels(choice), OTHER),
        remarks=remarks,
    )


def with_columns(stream: Stream, labels: Sequence[str], user_type: str, column_type: str) -> Stream:
    """The stream with these columns. Events of others are dead letters, or count in `other` if it is one."""
    other = OTHER in labels
    return replace(
        stream,
        source=replace(stream.source, user_type=user_type),  # type: ignore[arg-type]
        counts=replace(
            stream.counts,
            labels=tuple(labels),
            column_type=column_type,  # type: ignore[arg-type]
            unknown="column" if other else "dead-letter",
            unknown_column=list(labels).index(OTHER) if other else None,
        ),
    )

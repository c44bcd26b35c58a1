"""Replay: the worker's rules over history, from a file or from a topic, to release records."""

from operators.replay.inputs import FileInput, Input, TopicInput, open_file
from operators.replay.replaying import Released, Replay, replay, seeded_noise
from operators.replay.span import Span, plan_span
from operators.replay.values import ValueReplay, replay_values

__all__ = [
    "FileInput",
    "Input",
    "Released",
    "Replay",
    "Span",
    "TopicInput",
    "ValueReplay",
    "open_file",
    "plan_span",
    "replay",
    "replay_values",
    "seeded_noise",
]

"""Replay: the worker's rules over history, from a file or from a topic, to release records."""

from eventveil.replay.inputs import FileInput, Input, TopicInput, open_file
from eventveil.replay.replaying import Released, Replay, replay, seeded_noise
from eventveil.replay.span import Span, plan_span
from eventveil.replay.values import ValueReplay, replay_values

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

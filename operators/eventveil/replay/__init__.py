"""Replay: the worker's rules over history, from a file or from a topic, to release records."""

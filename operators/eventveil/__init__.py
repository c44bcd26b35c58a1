"""Eventveil: differentially private counts of user events, released from Kafka once per timestamp."""

__version__ = "0.1.0"

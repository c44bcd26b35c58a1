"""Faults of every kind against workers on a real Kafka, and the verifier that judges what came of them."""

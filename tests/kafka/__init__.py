"""A real Apache Kafka for development and tests, and small helpers to talk to it."""

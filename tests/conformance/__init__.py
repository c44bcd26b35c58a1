"""What the log in memory and Apache Kafka must do alike: behaviours, and random histories of operations."""

import pytest

pytest.register_assert_rewrite("tests.conformance.behaviours")

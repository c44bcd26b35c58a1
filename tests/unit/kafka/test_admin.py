"""Clients for what administrators ask: where they are freed."""

from __future__ import annotations

import subprocess
import sys

#: The answer is a failure, which comes in the client's own thread once a second is over.
_IN_A_CYCLE = """
import gc
import os
import threading
import time

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from eventveil.kafka.admin import Admin


class Slow(Admin):
    def __del__(self):
        super().__del__()
        # The thread that frees has the client now, and this one is not done with it.
        time.sleep(0.3)


class Cycle:
    def __init__(self):
        self.itself = self
        self.client = Slow({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})


gc.disable()
threads = len(os.listdir("/proc/self/task"))
cycle, collected = Cycle(), threading.Event()
(answer,) = cycle.client.list_offsets(
    {TopicPartition("topic", 0): OffsetSpec.latest()}, request_timeout=1
).values()
answer.add_done_callback(lambda _: (gc.collect(), collected.set()))
del cycle
assert collected.wait(30)
deadline = time.monotonic() + 30
while len(os.listdir("/proc/self/task")) > threads + 1:
    assert time.monotonic() < deadline, "the client was not freed"
    time.sleep(0.05)
print("one thread more, the one that frees clients")
"""


def test_a_client_that_the_garbage_collector_finds_in_its_own_thread_is_freed_in_another() -> None:
    """librdkafka aborts the process if it is freed there."""
    done = subprocess.run([sys.executable, "-c", _IN_A_CYCLE], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "one thread more, the one that frees clients\n",
        "",
    )

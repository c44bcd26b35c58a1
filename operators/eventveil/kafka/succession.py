"""What has become of a predecessor's last transaction, by what the coordinator said before it was fenced.

Pure. A coordinator tells a producer and the state of its transaction. The epoch that a successor gets is the
next one, unless a transaction was open: then there is one more, and that transaction was aborted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eventveil.kafka.outgoing import Producer

_COMMITTED = {"PrepareCommit", "CompleteCommit"}
_COMPLETE = {"CompleteCommit", "CompleteAbort"}


@dataclass(frozen=True, slots=True)
class LastTransaction:
    """The producer that an identity has, and the state of its transaction, as DescribeTransactions has it."""

    producer: Producer
    state: str

    @property
    def is_complete(self) -> bool:
        """Whether its markers are written, as far as the coordinator knows."""
        return self.state in _COMPLETE


def was_committed(seen: Sequence[LastTransaction], successor: Producer) -> bool | None:
    """Whether the last transaction before ``successor`` was committed; None if there never was one.

    ``seen`` is what the coordinator said before each attempt to become the successor. False where it cannot
    be told: then what was incomplete is not shown, and what is missing is noticed where logs are compared.
    """
    if not seen:
        return None
    last, epoch = seen[0], seen[0].producer.epoch
    for one in seen[1:]:
        if one == LastTransaction(Producer(last.producer.id, epoch + 1), "Empty"):
            # The answer to an attempt was lost, but it was done.
            epoch += 1
        else:
            last, epoch = one, one.producer.epoch
    return successor == Producer(last.producer.id, epoch + 1) and last.state in _COMMITTED

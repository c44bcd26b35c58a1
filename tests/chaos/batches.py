"""What a partition holds, batch by batch, from the files of a broker: also what no client is shown."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from aiokafka.record.memory_records import MemoryRecords

#: How a refusal names a partition whose log and state differ.
_DIFFER = re.compile(r"([\w.-]+), partition (\d+)")
_LAST = 40


def told(folder: Path, reasons: Iterable[str]) -> list[str]:
    """The last batches of each partition that a worker which stopped found rewound, for who reads it."""
    places = {place for reason in reasons if "rewound" in reason for place in _DIFFER.findall(reason)}
    found = (
        (topic, number, path)
        for topic, number in sorted(places)
        for path in folder.rglob(f"{topic}-{number}")
    )
    return [f"{path.relative_to(folder)} holds {'; '.join([*_batches(path)][-_LAST:])}" for *_, path in found]


def _batches(partition: Path) -> Iterator[str]:
    """Offset, producer and epoch of each batch, and whether it is a marker."""
    for segment in sorted(partition.glob("*.log")):
        records = MemoryRecords(segment.read_bytes())
        while (batch := records.next_batch()) is not None:
            what = f"{batch.next_offset - batch.base_offset} records"
            if batch.is_control_batch:
                what = "COMMIT" if struct.unpack(">hh", next(iter(batch)).key)[1] else "ABORT"
            yield f"{batch.base_offset} {what} of {batch.producer_id}/{batch.producer_epoch}"

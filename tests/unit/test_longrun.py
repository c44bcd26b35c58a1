"""What a long run measures of the changelogs: growth is seen, when the broker cleans is not."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.longrun.run import live_bytes

Records = list[tuple[bytes, bytes]]


def of_a_worker(timestamps: int) -> Records:
    """Two keys, written anew for every timestamp, now and then with what a transaction has in between."""
    return [
        (key, b"x" * (1000 if number % 100 == 50 else 100))
        for number in range(timestamps)
        for key in (b"barrier", b"places")
    ]


def cleaned(records: Records, dirty: int) -> Records:
    """What a broker leaves that has cleaned all but the last ``dirty`` records."""
    split = len(records) - dirty
    return [*dict(records[:split]).items(), *records[split:]]


def sawtooth(timestamps: int) -> Iterator[Records]:
    """One and the same partition, at every place of the broker's cleaner."""
    records = of_a_worker(timestamps)
    return (cleaned(records, dirty) for dirty in range(0, len(records) + 1, 7))


def test_what_is_superseded_does_not_count_whether_it_is_cleaned_or_not() -> None:
    assert {live_bytes(one) for one in sawtooth(200)} == {live_bytes(of_a_worker(1000))}
    assert live_bytes(of_a_worker(1000)) == len(b"barrier") + len(b"places") + 200


def test_a_key_for_every_timestamp_is_growth_even_if_its_value_is_gone() -> None:
    def growing(timestamps: int) -> Records:
        return [*of_a_worker(timestamps), *((b"places/%06d" % one, b"") for one in range(timestamps))]

    assert live_bytes(growing(40_000)) > 4.9 * live_bytes(growing(8_000))


def test_a_value_that_grows_with_the_timestamps_is_growth() -> None:
    def growing(timestamps: int) -> Records:
        return [*of_a_worker(timestamps), (b"places", b"1," * timestamps)]

    assert live_bytes(growing(40_000)) > 4.9 * live_bytes(growing(8_000))
    assert live_bytes([]) == live_bytes([(None, None)]) == 0

"""Moving the state of sources in the counting changelog, without Kafka."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eventveil.lifecycle.layout import relocated
from eventveil.model.records import TopicPartition

C = "app-counting-changelog"
KEYS = st.dictionaries(
    st.sampled_from([b"a", b"genesis/a", b"b", b"genesis/b"]), st.binary(max_size=3), max_size=4
)


@given(tables=st.lists(KEYS, min_size=1, max_size=4), first=st.integers(0, 3), by=st.integers(1, 3))
def test_every_table_is_whole_where_it_was_moved_to_and_nowhere_else(
    tables: list[dict[bytes, bytes]], first: int, by: int
) -> None:
    """Places overlap: where one was moved to, another one has to leave."""
    before: dict[TopicPartition, dict[bytes, bytes]] = {TopicPartition(C, number): {} for number in range(12)}
    moves = {
        TopicPartition(C, first + number): TopicPartition(C, first + by + number)
        for number in range(len(tables))
    }
    for number, table in enumerate(tables):
        before[TopicPartition(C, first + number)] = table
    after = {place: dict(table) for place, table in before.items()}
    for record in relocated(before, moves):
        assert record.key is not None
        assert record.partition is not None
        place = (record.topic, record.partition)
        if record.value is None:
            after[place].pop(record.key, None)
        else:
            after[place][record.key] = record.value
    for number, table in enumerate(tables):
        assert after[C, first + by + number] == table
    assert sum(map(len, after.values())) == sum(map(len, tables))

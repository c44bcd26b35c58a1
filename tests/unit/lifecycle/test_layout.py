"""Moving the state of sources in the counting changelog, without Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hypothesis import given
from hypothesis import strategies as st

from eventveil.lifecycle.layout import one_by_one, relocated
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
    after = moved(before, [moves])
    for number, table in enumerate(tables):
        assert after[C, first + by + number] == table
    assert sum(map(len, after.values())) == sum(map(len, tables))
    # Moved one by one, each state is in one of its two places all the time.
    groups = one_by_one(moves)
    assert [len(group) for group in groups] == [1] * len(moves)
    for count in range(len(groups)):
        between = moved(before, groups[:count])
        for number, table in enumerate(tables):
            assert table in (between[C, first + number], between[C, first + by + number])
    assert moved(before, groups) == after


def moved(
    before: Mapping[TopicPartition, Mapping[bytes, bytes]],
    groups: Iterable[Mapping[TopicPartition, TopicPartition]],
) -> dict[tuple[str, int], dict[bytes, bytes]]:
    """What is where after transactions of these moves."""
    after: dict[tuple[str, int], dict[bytes, bytes]] = {place: dict(one) for place, one in before.items()}
    for group in groups:
        for record in relocated(before, group):
            assert record.key is not None
            assert record.partition is not None
            place = (record.topic, record.partition)
            if record.value is None:
                after[place].pop(record.key, None)
            else:
                after[place][record.key] = record.value
    return after


def test_moves_in_a_circle_are_made_together_and_last() -> None:
    place = [TopicPartition(C, number) for number in range(4)]
    groups = one_by_one({place[0]: place[1], place[1]: place[0], place[2]: place[3]})
    assert groups == [{place[2]: place[3]}, {place[0]: place[1], place[1]: place[0]}]

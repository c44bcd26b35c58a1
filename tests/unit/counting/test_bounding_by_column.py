"""The bound of each column beside that of all, against models that look at one event after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventveil.counting.assigner import Rows
from eventveil.counting.bounding_by_column import ColumnContributions, occurrences
from eventveil.counting.bounding_by_origin import EarliestContributions
from eventveil.counting.counter import CounterState, StreamCounter
from eventveil.counting.users import Users
from eventveil.decoding.bulk import BulkReader, fields_of
from eventveil.model.topology import Discover, Stream
from eventveil.privacy.gaussian import largest_square
from eventveil.process import kernel
from tests.fuzz.ways import WAYS, read_by
from tests.unit.support import counter_state, event, sparse, stream

COLUMNS = 4
Event = tuple[int, int]
Where = tuple[int, int, int]

_BOUNDS = st.tuples(st.integers(2, 5), st.integers(1, 4)).filter(lambda both: both[1] < both[0])
_EVENTS = st.tuples(st.integers(0, 3) | st.integers(0, 2**32 - 2), st.integers(0, COLUMNS - 1))
_CHUNKS = st.lists(st.lists(_EVENTS, min_size=1, max_size=30), max_size=8)


class Model:
    """The rule as it is written, for one event after the other."""

    def __init__(self, bound: int, per_column: int) -> None:
        self._bound, self._per_column = bound, per_column
        self._pairs: Counter[Event] = Counter()
        self._users: Counter[int] = Counter()

    def admit(self, user: int, column: int) -> bool:
        if self._pairs[user, column] >= self._per_column or self._users[user] >= self._bound:
            return False
        self._pairs[user, column] += 1
        self._users[user] += 1
        return True

    def counts(self) -> list[int]:
        found = [0] * COLUMNS
        for (_, column), events in self._pairs.items():
            found[column] += events
        return found

    def users(self) -> set[int]:
        return set(self._users)


def admit(contributions: ColumnContributions, events: list[Event]) -> list[bool]:
    users, columns = np.array(events, np.int64).reshape(-1, 2).T
    return contributions.admit(users, columns).tolist()


@given(_CHUNKS, _BOUNDS)
def test_events_count_by_both_bounds_in_whatever_chunks(
    chunks: list[list[Event]], bounds: tuple[int, int]
) -> None:
    contributions, model = ColumnContributions(*bounds), Model(*bounds)
    for chunk in chunks:
        assert admit(contributions, chunk) == [model.admit(*one) for one in chunk]
        assert {*contributions.users().tolist()} == model.users()
        assert len(contributions) == len(model.users())


@given(st.lists(_EVENTS, max_size=60), _BOUNDS)
def test_what_counts_of_a_user_is_the_first_of_each_column_and_of_these_the_first(
    events: list[Event], bounds: tuple[int, int]
) -> None:
    bound, per_column = bounds
    found = admit(ColumnContributions(bound, per_column), events)
    for user in {one for one, _ in events}:
        own = [at for at, one in enumerate(events) if one[0] == user]
        within = Counter[int]()
        first = []
        for at in own:
            within[events[at][1]] += 1
            if within[events[at][1]] <= per_column:
                first.append(at)
        assert [at for at in own if found[at]] == first[:bound]


def test_it_holds_no_more_pairs_than_events_that_count() -> None:
    contributions = ColumnContributions(3, 1)
    admit(contributions, [(7, column) for column in range(100)] * 5)
    assert len(contributions._counted) == 3


def test_users_with_new_numbers_have_counted_what_they_had() -> None:
    chance, contributions, model = Random(1), ColumnContributions(3, 2), Model(3, 2)
    numbers = chance.sample(range(2**32 - 1), 40)
    for chunk in range(8):
        if chunk == 4:
            contributions.renumber(np.array(numbers))
        events = [(chance.randrange(40), chance.randrange(COLUMNS)) for _ in range(25)]
        known = [(numbers[user] if chunk >= 4 else user, column) for user, column in events]
        assert admit(contributions, known) == [model.admit(*one) for one in events]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=20))
def test_occurrences_are_counted_before_each(keys: list[tuple[int, int]]) -> None:
    first, second = np.array(keys, np.int64).reshape(-1, 2).T
    assert occurrences(first, second).tolist() == [keys[:at].count(one) for at, one in enumerate(keys)]


class ByOrigin:
    """Every event that ever came; those that count are picked anew each time, by origin."""

    def __init__(self, bound: int, per_column: int) -> None:
        self._bounds = bound, per_column
        self._came: dict[int, dict[Where, int]] = {}

    def admit(self, user: int, origin: Where, column: int) -> bool:
        known = self._came.setdefault(user, {})
        before = len(self._of(user))
        known.setdefault(origin, column)
        return len(self._of(user)) > before

    def _of(self, user: int) -> list[int]:
        model, known = Model(*self._bounds), self._came[user]
        return [known[origin] for origin in sorted(known) if model.admit(user, known[origin])]

    def counts(self) -> list[int]:
        found = Counter(column for user in self._came for column in self._of(user))
        return [found[column] for column in range(COLUMNS)]


def by_origin(one: EarliestContributions, chunk: list[tuple[int, Where, int]]) -> list[bool]:
    users, origins, columns = zip(*chunk, strict=True)
    return one.admit(np.array(users), np.array(origins), np.array(columns)).tolist()


_ORIGINS = st.tuples(*[st.integers(0, 3)] * 3) | st.tuples(
    *[st.sampled_from([0, 1, 2**32, 2**40, 2**63 - 1])] * 3
)
_REKEYED = st.lists(
    st.lists(st.tuples(st.integers(0, 2), _ORIGINS), min_size=1, max_size=20), min_size=1, max_size=8
)


@given(_REKEYED, _BOUNDS)
def test_of_rekeyed_events_the_earliest_within_both_bounds_count_after_every_chunk(
    chunks: list[list[tuple[int, Where]]], bounds: tuple[int, int]
) -> None:
    contributions, model = EarliestContributions(bounds[0], COLUMNS, bounds[1]), ByOrigin(*bounds)
    for chunk in chunks:
        # An event that comes twice has the same column.
        events = [(user, origin, sum(origin) % 7 % COLUMNS) for user, origin in chunk]
        assert by_origin(contributions, events) == [model.admit(*one) for one in events]
        assert contributions.counts().tolist() == model.counts()


@pytest.mark.parametrize("bounds", [(2, 1), (5, 2), (30, 7)])
def test_many_rekeyed_events_in_random_order_count_as_they_came(bounds: tuple[int, int]) -> None:
    chance = Random(bounds[0])
    events = [
        (chance.randrange(60), (chance.randrange(2**20), chance.randrange(5), at), chance.randrange(COLUMNS))
        for at in range(4000)
    ]
    events += chance.sample(events, 400)
    chance.shuffle(events)
    contributions, model = EarliestContributions(bounds[0], COLUMNS, bounds[1]), ByOrigin(*bounds)
    numbers = [*range(60)]
    while events:
        size = chance.choice((1, 20, 500))
        chunk = events[:size]
        del events[:size]
        if chance.random() < 0.1:
            new = chance.sample(range(60), 60)
            contributions.renumber(np.array(new))
            numbers = [new[number] for number in numbers]
        known = [(numbers[user], origin, column) for user, origin, column in chunk]
        assert by_origin(contributions, known) == [model.admit(*one) for one in chunk]
    assert contributions.counts().tolist() == model.counts()


def bounded(bound: int, per_column: int, **changes: Any) -> Stream:
    terms = {"contributions": bound, "per_column": per_column, "labels": tuple("abcd"), "max_ahead": 100}
    return stream(**terms, **changes)


class Log:
    """A source partition and who counts it: one after the other, each from the durable state of the last."""

    def __init__(self, of: Stream, values: Sequence[bytes | None]) -> None:
        self._of, self._values = of, values
        self._reader = BulkReader(fields_of([(of.source, of.counts)]), 1_000_000)
        self.outcomes: Counter[str] = Counter()
        self.take_over(counter_state())

    def take_over(self, state: CounterState) -> None:
        self.one = StreamCounter(self._of, 1, state, Users(self._of.source, 1, 0))
        self.position = state.resume

    def read(self, until: int) -> None:
        """A chunk that ends before this offset."""
        values = self._values[self.position : until]
        offsets = np.arange(self.position, until)
        origins = None
        if self._of.source.raw is not None:
            # Later ones come from earlier places now and then.
            origins = np.stack([offsets * 7 % 5, offsets % 2, offsets], axis=1)
        rows = Rows(offsets, np.full(len(values), 1000), values, self._reader.read(values), origins)
        self.one.observe(rows)
        self.outcomes += self.one.new_outcomes()
        self.position = until

    def restart(self) -> None:
        """A successor, which reads again what open timestamps need."""
        judged = self.position
        self.take_over(self.one.state_at(judged))
        self.read(judged)

    def forget(self) -> bool:
        """Whether users were forgotten who are in no open timestamp, so that others have new numbers."""
        self.one.users.forget(self.one.contributors())
        new = self.one.users.forget(self.one.contributors())
        if new is not None:
            self.one.renumber(new)
        return new is not None


def model_of(events: list[tuple[str, str, int]], of: Stream, unknown: int | None) -> list[dict[int, int]]:
    """The counts of three timestamps, one event after the other, by the name of its user."""
    labels, found = of.counts.labels, []
    for timestamp in (1, 2, 3):
        model = Model(of.counts.contributions, of.counts.per_column or 0)
        for user, name, time in events:
            column = labels.index(name) if name in labels else unknown
            if (time - 1000) // 10 + 1 == timestamp and column is not None:
                model.admit(int(user), column)
        found.append({column: count for column, count in enumerate(model.counts()) if count})
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("unknown", [None, 2])
def test_a_partition_counts_the_same_in_any_chunks_and_after_any_restart(
    way: str, unknown: int | None
) -> None:
    """Names that are not listed share one column, and so its bound."""
    chance = Random(unknown)
    rest: dict[str, Any] = {"unknown": "ignore"}
    if unknown is not None:
        rest = {"unknown": "column", "unknown_column": unknown}
    forgot = 0
    for _ in range(12):
        bound = chance.randrange(2, 7)
        of = bounded(bound, chance.randrange(1, bound), **rest)
        events = [
            (str(chance.randrange(6)), chance.choice("aabcdxyz"), 1000 + chance.randrange(30))
            for _ in range(400)
        ]
        # Users whose events do not count unless unknown columns do.
        events[::9] = [(str(100 + at), "other", time) for at, (_, _, time) in enumerate(events[::9])]
        values = [event(user, name, time) for user, name, time in events]
        expected, told = model_of(events, of, unknown), set()
        for restarts in (0.0, 0.4):
            with read_by(way):
                log = Log(of, values)
                while log.position < len(values):
                    log.read(min(len(values), log.position + chance.choice((1, 7, 100))))
                    if chance.random() < restarts:
                        log.restart()
                    forgot += chance.random() < 0.2 and log.forget()
                assert [sparse(log.one.close()) for _ in range(3)] == expected
            told.add(tuple(sorted(log.outcomes.items())))
        # What became of each event is told once, by either owner.
        assert len(told) == 1
        assert sum(dict(next(iter(told))).values()) == len(events)
    assert forgot or unknown is not None


def test_the_kernel_renumbers_pairs_with_their_users_or_nothing() -> None:
    with read_by("kernel"):
        tally = kernel.NATIVE.Tally(3, COLUMNS, 1)

        def take(*events: tuple[int, int]) -> tuple[int, int]:
            users, columns = np.array(events, np.int64).T
            rows, timestamps = np.arange(len(events)), np.ones(len(events), np.int64)
            counted, left_out, _, _ = tally.take(None, (rows, users.copy(), columns.copy(), timestamps), 0)[0]
            return counted, left_out

        assert take((5, 0), (3, 0), (5, 1)) == (3, 0)
        with pytest.raises(IndexError, match="no new number"):
            tally.renumber(1, np.array([0, 1, 2]))
        tally.renumber(1, np.array([0, -1, -1, 5, -1, 3]))
        # User 3 is who was 5: nothing more in the columns 0 and 1, and one in all.
        assert take((3, 0), (3, 1), (3, 2), (3, 3)) == (1, 3)
        assert take((5, 0), (5, 1)) == (1, 1)


def test_columns_that_are_found_have_no_bound_that_nobody_keeps() -> None:
    how = Discover(Fraction(1), Fraction(1, 10**9), Fraction(1, 10), 5, 9)
    of = stream(labels=("other",), contributions=3, per_column=1, discover=how)
    with pytest.raises(ValueError, match="no bound of their own"):
        StreamCounter(of, 1, counter_state(), Users(of.source, 1, 0))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rekeyed", [False, True])
def test_a_user_moves_the_counts_of_a_timestamp_by_no_more_than_both_bounds_allow(
    way: str, rekeyed: bool
) -> None:
    """Whatever the user sends, and whenever, into listed columns and into others that share one."""
    chance, reached = Random(rekeyed), 0
    for _ in range(60):
        bound = chance.randrange(2, 8)
        per_column = chance.randrange(-(-bound // COLUMNS), bound)
        rest: dict[str, Any] = {"unknown": "column", "unknown_column": 3}
        rest |= {"raw": "events"} if rekeyed else {}
        of = bounded(bound, per_column, **rest)
        events = [
            (chance.choice(("u", "v", "w")), chance.choice("aabbcxyz"), chance.randrange(1000, 1020))
            for _ in range(chance.choice((20, 60)))
        ]
        found = []
        for present in (True, False):
            counts = []
            with read_by(way):
                log = Log(of, [event(*one) if present or one[0] != "u" else None for one in events])
                while log.position < len(events):
                    log.read(min(len(events), log.position + chance.choice((1, 5, 40))))
                for _ in range(2):
                    closed = sparse(log.one.close())
                    counts.append([closed.get(column, 0) for column in range(COLUMNS)])
            found.append(np.array(counts))
        moved = found[0] - found[1]
        assert moved.min() >= 0
        assert moved.max() <= per_column
        assert moved.sum(axis=1).max() <= bound
        squares = (moved**2).sum(axis=1).max()
        assert squares <= largest_square(bound, per_column)
        reached += squares == largest_square(bound, per_column)
    assert reached > 5

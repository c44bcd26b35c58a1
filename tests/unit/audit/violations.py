"""One violation each: what it does to the records of a clean run, and what must be found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.unit.audit.story import (
    FIRST,
    LAST,
    PARTITION,
    UNITS,
    WINDOW,
    Item,
    Names,
    Story,
    entry_of,
    other_draw,
)


def second_draw(story: Story) -> None:
    story.sink.append(other_draw(story.sink[5]))


def second_draw_before_the_first(story: Story) -> None:
    story.sink.insert(5, other_draw(story.sink[5]))


def second_draw_aborted(story: Story) -> None:
    story.sink.insert(5, other_draw(story.sink[5], committed=False))


def charged_draw_aborted_and_another_committed(story: Story) -> None:
    story.sink.insert(5, other_draw(story.sink[5]))
    story.sink[6].committed = False


def gap_in_the_ledger_shown_by_an_aborted_record(story: Story) -> None:
    entry_and_record_missing(story)
    story.sink.append(replace(story.sink[-3], committed=False))
    story.sink[-1].edit(timestamp=LAST - 3)


def second_entry_with_another_release(story: Story) -> None:
    story.ledger.append(entry_of(other_draw(story.sink[5])))


def aborted_entry_with_another_release(story: Story) -> None:
    story.ledger.insert(5, entry_of(other_draw(story.sink[5]), committed=False))


def two_draws_of_an_undecided_timestamp(story: Story) -> None:
    last = story.sink.pop()
    story.ledger.pop()
    story.sink += [replace(last, committed=False), other_draw(last, committed=False)]


def undecided_draw_in_the_ledger_and_another_in_the_sink(story: Story) -> None:
    last = story.sink.pop()
    story.ledger[-1] = replace(story.ledger[-1], committed=False)
    story.sink.append(other_draw(last, committed=False))


def record_replaced(story: Story) -> None:
    story.sink[5] = other_draw(story.sink[5])


def record_without_entry_at_the_end(story: Story) -> None:
    story.ledger.pop()


def record_before_the_first_entry(story: Story) -> None:
    story.sink.insert(0, replace(story.sink[0]))
    story.sink[0].edit(timestamp=FIRST - 1)


def record_in_white_space(story: Story) -> None:
    story.sink[5].value = (story.sink[5].value or b"") + b" "


def tombstone_in_the_sink(story: Story) -> None:
    story.sink.append(Item(None))


def garbage_in_the_sink(story: Story) -> None:
    story.sink.append(Item(b"{"))


def record_without_counts(story: Story) -> None:
    story.sink.append(replace(story.sink[5]))
    story.sink[-1].edit(counts=None)


def record_missing(story: Story) -> None:
    del story.sink[5]


def last_record_missing(story: Story) -> None:
    story.sink.pop()


def record_only_aborted(story: Story) -> None:
    story.sink[5].committed = False


def entry_and_record_missing(story: Story) -> None:
    del story.ledger[-4], story.sink[-4]
    # What follows has forgotten the missing spend, or it would be caught by that as well.
    for index in range(-3, 0):
        spent = sum(
            sum(item.fields["spent"].values())
            for item in story.ledger[: index or None]
            if item.fields["timestamp"] > story.ledger[index].fields["timestamp"] - WINDOW
        )
        own = sum(story.ledger[index].fields["spent"].values())
        story.charge(index, window_spent=spent + own)


def entries_swapped(story: Story) -> None:
    ledger = story.ledger
    ledger[-1], ledger[-2] = ledger[-2], ledger[-1]


def window_above_epsilon(story: Story) -> None:
    before = story.ledger[-1].fields
    more = UNITS - before["window_spent"] + 1
    spent = {**before["spent"], "publish": before["spent"]["publish"] + more}
    story.charge(-1, spent=spent, window_spent=UNITS + 1)


def window_above_epsilon_in_denial(story: Story) -> None:
    window_above_epsilon(story)
    story.charge(-1, window_spent=UNITS)


def window_spent_too_small(story: Story) -> None:
    story.charge(5, window_spent=story.ledger[5].fields["window_spent"] - 1)


def negative_spend(story: Story) -> None:
    story.charge(5, spent={"test": -5, "publish": 5})


def spend_as_text(story: Story) -> None:
    story.ledger[5].edit(spent={"test": "0", "publish": 0})


def entry_with_a_short_digest(story: Story) -> None:
    story.ledger[5].edit(digest="00")


def another_mechanism(story: Story) -> None:
    story.charge(5, mechanism="uniform")


def another_window(story: Story) -> None:
    story.charge(5, window=WINDOW + 1)


def other_units(story: Story) -> None:
    story.charge(5, units=UNITS + 1)


def another_epsilon(story: Story) -> None:
    story.charge(5, epsilon="1.01")


def epsilon_that_is_none(story: Story) -> None:
    story.charge(5, epsilon="1e999999999")


def another_instance(story: Story) -> None:
    story.ledger[5].edit(instance="other")


def entry_that_understates_its_record(story: Story) -> None:
    story.ledger[-1].edit(spent={"test": 0, "publish": 0}, window_spent=_window_sum(story, -1, own=0))


def entry_repeated_with_another_charge(story: Story) -> None:
    story.ledger.append(replace(story.ledger[5]))
    story.ledger[-1].edit(fresh=not story.ledger[5].fields["fresh"])


def fresh_but_not_charged(story: Story) -> None:
    assert not story.sink[5].fields["fresh"]
    story.charge(5, fresh=True)


def not_fresh_but_changed(story: Story) -> None:
    assert not story.sink[5].fields["fresh"]
    story.charge(5, counts={"a": 1, "b": 2})
    # The next fresh release hides it from the timestamps that follow.
    story.charge(6, counts={"a": 1, "b": 2})


def not_fresh_but_changed_in_front_of_its_predecessor(story: Story) -> None:
    not_fresh_but_changed(story)
    story.sink[4], story.sink[5] = story.sink[5], story.sink[4]


def not_fresh_but_changed_in_another_partition(story: Story) -> None:
    not_fresh_but_changed(story)
    story.sink[5].partition = 1


def not_fresh_but_changed_after_one_that_was_only_aborted(story: Story) -> None:
    not_fresh_but_changed(story)
    story.sink[4].committed = False


def records_swapped(story: Story) -> None:
    story.sink[4], story.sink[5] = story.sink[5], story.sink[4]


def first_release_not_fresh_but_not_zero(story: Story) -> None:
    assert not story.sink[0].fields["fresh"]
    story.charge(0, counts={"a": 0, "b": 1})


def repeated_but_charged_as_fresh(story: Story) -> None:
    index = next(at for at, item in enumerate(story.sink) if item.fields["fresh"])
    story.charge(index, fresh=False)


def record_of_another_hour(story: Story) -> None:
    story.charge(5, start="1970-01-01T00:00:00Z")


def record_that_ends_at_another_time(story: Story) -> None:
    story.charge(5, end=None)


def entry_with_another_key(story: Story) -> None:
    story.ledger[5].key = b"other"


def record_without_a_key(story: Story) -> None:
    story.sink[5].key = None


def entry_in_another_partition(story: Story) -> None:
    story.ledger[5].partition = PARTITION + 1


def garbage_in_the_ledger(story: Story) -> None:
    story.ledger.append(Item(b"?", partition=PARTITION))


def beginning_of_the_ledger_removed(story: Story) -> None:
    story.ledger_start = 40


def _window_sum(story: Story, index: int, own: int) -> int:
    items = story.ledger[index - WINDOW + 1 : index]
    return own + sum(sum(item.fields["spent"].values()) for item in items)


AT = FIRST + 5
VIOLATIONS: list[tuple[Callable[[Story], None], Names]] = [
    (second_draw, {("I1", AT), ("I2", AT)}),
    (second_draw_before_the_first, {("I1", AT), ("I2", AT)}),
    (second_draw_aborted, {("I1", AT), ("I2", AT)}),
    (charged_draw_aborted_and_another_committed, {("I1", AT), ("I2", AT), ("I7", AT)}),
    (gap_in_the_ledger_shown_by_an_aborted_record, {("I2", LAST - 3), ("I7", LAST - 2)}),
    (second_entry_with_another_release, {("I1", AT)}),
    (aborted_entry_with_another_release, {("I1", AT)}),
    (two_draws_of_an_undecided_timestamp, {("I1", LAST)}),
    (undecided_draw_in_the_ledger_and_another_in_the_sink, {("I1", LAST)}),
    (record_replaced, {("I2", AT), ("I7", AT)}),
    (record_without_entry_at_the_end, {("I2", LAST)}),
    (record_before_the_first_entry, {("I2", FIRST - 1)}),
    (record_in_white_space, {("I2", AT), ("I7", AT)}),
    (tombstone_in_the_sink, {("I2", None)}),
    (garbage_in_the_sink, {("I2", None)}),
    (record_without_counts, {("I2", AT)}),
    (record_missing, {("I7", AT)}),
    (last_record_missing, {("I7", LAST)}),
    (record_only_aborted, {("I7", AT)}),
    (entry_and_record_missing, {("I7", LAST - 2)}),
    (entries_swapped, {("I7", LAST), ("I7", LAST - 1)}),
    (window_above_epsilon, {("I7", LAST)}),
    (window_above_epsilon_in_denial, {("I7", LAST)}),
    (window_spent_too_small, {("I7", AT)}),
    (negative_spend, {("I7", AT), ("I7", AT + 1), ("I2", AT)}),
    (spend_as_text, {("I7", AT), ("I7", AT + 1), ("I2", AT)}),
    (entry_with_a_short_digest, {("I7", AT), ("I7", AT + 1), ("I2", AT)}),
    (another_mechanism, {("I7", AT)}),
    (another_window, {("I7", AT)}),
    (other_units, {("I7", AT)}),
    (another_epsilon, {("I7", AT)}),
    (epsilon_that_is_none, {("I7", AT)}),
    (another_instance, {("I7", AT)}),
    (entry_that_understates_its_record, {("I7", LAST)}),
    (entry_repeated_with_another_charge, {("I7", AT)}),
    (fresh_but_not_charged, {("I7", AT)}),
    (not_fresh_but_changed, {("I7", AT)}),
    (not_fresh_but_changed_in_front_of_its_predecessor, {("I7", AT), ("I7", AT - 1)}),
    (not_fresh_but_changed_in_another_partition, {("I7", AT)}),
    (not_fresh_but_changed_after_one_that_was_only_aborted, {("I7", AT), ("I7", AT - 1)}),
    (records_swapped, {("I7", AT - 1)}),
    (first_release_not_fresh_but_not_zero, {("I7", FIRST)}),
    (repeated_but_charged_as_fresh, {("I7", FIRST + 1)}),
    (record_of_another_hour, {("I7", AT)}),
    (record_that_ends_at_another_time, {("I7", AT)}),
    (entry_with_another_key, {("I7", AT)}),
    (record_without_a_key, {("I7", AT)}),
    (entry_in_another_partition, {("I7", AT)}),
    (garbage_in_the_ledger, {("I7", None)}),
    (beginning_of_the_ledger_removed, {("I7", None)}),
]

"""Of releases the log tells the first of each stream and then, once an hour, the newest."""

from __future__ import annotations

from eventveil.worker.observe.progress import AGAIN_SECONDS, Progress, listed


def test_the_first_release_is_told_of_and_then_the_newest_of_all_once_an_hour() -> None:
    progress, told = Progress(), {}
    for second in range(0, 8000, 10):
        following = {"views": 7 + second // 100, "sections": 2 + second // 5000, "quiet": 4}
        if found := progress.look(following, float(second)):
            told[second] = found
    assert AGAIN_SECONDS == 3600
    assert told == {100: {"views": 7}, 3700: {"views": 43}, 5000: {"sections": 2}, 7300: {"views": 79}}


def test_a_stream_is_told_of_again_after_another_take_over() -> None:
    progress = Progress()
    assert progress.look({"views": 7}, 0.0) == {}
    assert progress.look({"views": 8}, 1.0) == {"views": 7}
    assert progress.look({}, 2.0) == {}
    assert progress.look({"views": 20}, 3.0) == {}, "another worker has released these"
    assert progress.look({"views": 21}, 4.0) == {"views": 20}


def test_of_many_streams_some_are_listed() -> None:
    names = [f"s{number}" for number in range(23)]
    assert listed(names[:20]) == "; ".join(names[:20])
    assert listed(names) == "; ".join([*names[:20], "3 streams more"])
    assert listed([]) == ""

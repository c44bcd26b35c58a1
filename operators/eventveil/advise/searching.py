"""Which choices are tried, in three passes, and which is the best.

First the kind to try first alone, at every interval and contribution bound, once; then all kinds at the
bounds that did best, twice; then the best of all, until each has ``RUNS`` runs. Columns that are hopeless
even there are tried once more as one, in the same way. Each run of a kind that releases negative counts is
judged with them and without: a minimum of the sink costs neither budget nor a run. If a delta is allowed,
the same is done with Gaussian noise beside, with less in one column than in all too, which makes that noise
smaller; of choices that are alike, pure epsilon comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from eventveil.advise.choices import (
    INTERVALS,
    NORMAL,
    WINDOWED,
    Bounding,
    Candidate,
    Question,
    can_be_negative,
    intervals,
    kinds,
    noises,
    per_column,
    settings_of,
)
from eventveil.advise.scoring import HOPELESS, Score, score
from eventveil.advise.tally import Counts, Tally, rolled_up
from eventveil.advise.trials import Outcome, Runner, Trial
from eventveil.describe.guarantee import duration_words
from eventveil.model.errors import EventveilError
from eventveil.topology.periods import HOUR

RUNS = 8
_BOUNDS, _FINALISTS = 2, 4
#: Of choices whose errors differ by less than this part, the one that comes first is taken.
_ALIKE = 0.03
#: Work, in cells (timestamps times columns) and steps: beyond these, finer intervals are left out.
MOST_CELLS, _CELLS_OF_STEP = 20_000_000, 200
OTHER = "other"
_MINUTE = 60_000


@dataclass
class Findings:
    """What the search has found: ``scores`` of all that was tried, and the ``best`` of them.

    ``kept`` are the columns that stay apart in choices that roll up, None if there are none. ``left_out`` is
    the part of all events that is left out by each bounding. ``skipped`` intervals would
    have taken too much work.
    """

    question: Question
    tally: Tally
    skipped: tuple[int, ...] = ()
    sums: dict[Candidate, list[Counts]] = field(default_factory=dict)
    scores: dict[Candidate, Score] = field(default_factory=dict)
    left_out: dict[tuple[Bounding, bool], float] = field(default_factory=dict)
    kept: NDArray[np.int64] | None = None

    @property
    def best(self) -> Candidate:
        """The choice to recommend."""
        return self.in_order([one for one in self.scores if self.scores[one].runs >= RUNS])[0]

    def in_order(self, choices: Sequence[Candidate]) -> list[Candidate]:
        """The best first; of those alike, the one as it is, without delta, with the kind to try first.

        At a window of one that is Uniform: nothing is saved for later timestamps, and its error is known.
        """
        scores = self.scores
        ordered = sorted(choices, key=lambda one: scores[one].pooled)
        if not ordered:
            return []

        def rank(one: Candidate) -> tuple[bool, bool, int, bool, float]:
            is_plain = one.kind == "uniform" and one.window(self.question) == 1
            place = -1 if is_plain else WINDOWED.index(one.kind)
            return one.rolled, one.normal, place, one.clipped, scores[one].pooled

        limit = scores[ordered[0]].pooled * (1 + _ALIKE)
        first = min((one for one in ordered if scores[one].pooled <= limit), key=rank)
        return [first, *(one for one in ordered if one != first)]

    def labels(self, choice: Candidate) -> tuple[str, ...]:
        """The columns of a choice."""
        labels = self.question.labels
        if not choice.rolled or self.kept is None:
            return labels
        return (*(labels[index] for index in self.kept), OTHER)

    def totals(self, choice: Candidate) -> Counts:
        """All events, as the choice's columns have them: shape (units, columns)."""
        return self.columns_of(choice, self.tally.totals())

    def events(self, choice: Candidate) -> Counts:
        """All events of every timestamp, shape (timestamps, columns)."""
        return self.columns_of(choice, self.tally.counts(choice.interval, None))

    def counts(self, choice: Candidate) -> Counts:
        """The counts of every timestamp, shape (timestamps, columns): the events that are not left out."""
        if not choice.per_column:
            return self.columns_of(choice, self.tally.counts(choice.interval, choice.bound))
        kept = tuple(self.kept.tolist()) if choice.rolled and self.kept is not None else None
        return self.tally.counts_by_column(*choice.bounding, kept)

    def lost(self, choice: Candidate) -> float:
        """The part of all events that bounding leaves out."""
        return self.left_out[choice.bounding, choice.rolled]

    def columns_of(self, choice: Candidate, counts: Counts) -> Counts:
        """Counts of all columns as the choice has them."""
        return rolled_up(counts, self.kept) if choice.rolled and self.kept is not None else counts

    def trial(self, choice: Candidate, run: int, *, whole: bool = False) -> Trial:
        """The run of that number of a choice."""
        seed = self.question.seed
        return Trial(
            settings_of(self.question, choice),
            self.counts(choice).astype(np.int32),
            self.question.sensitivity(choice.bound),
            self.tally.units,
            None if seed is None else f"{seed}:{choice.key()}:{run}",
            whole,
            0 if choice.clipped else None,
        )


def search(question: Question, tally: Tally, run: Runner) -> Iterator[tuple[int, int, Findings]]:
    """Try what there is: yields, after each trial, how many are done, how many expected, and the findings.

    The last findings are complete. Raises EventveilError if there is nothing to choose from.
    """
    searching = _Searching(question, tally, run)
    for _ in searching.passes():
        yield searching.done, max(searching.done, searching.expected), searching.findings


class _Searching:
    def __init__(self, question: Question, tally: Tally, run: Runner) -> None:
        found = list(intervals(question))
        affordable = [one for one in found if self._work(tally, one) <= MOST_CELLS]
        if not found:
            raise EventveilError(
                f"no interval from {duration_words(INTERVALS[0])} to {duration_words(INTERVALS[-1])} divides"
                f" both the period of the totals ({duration_words(question.unit)}) and that of the budget"
                f" ({duration_words(question.protect)}), which is the window of the topology unless --protect"
                " is given; try --protect day"
            )
        if tally.span < question.protect / 4:
            unit = _MINUTE if tally.span < 2 * HOUR else HOUR
            raise EventveilError(
                f"the events cover {duration_words((tally.span // unit + 1) * unit)}, and the budget is for"
                f" {duration_words(question.protect)}: they cannot show how best to spread it over that"
                " period. Give events of several such periods"
            )
        self._run, self._intervals = run, affordable or found[:1]
        skipped = tuple(one for one in found if one not in self._intervals)
        self.findings = Findings(question, tally, skipped)
        self.done = 0
        tried = [5 + 2 * _BOUNDS * len(NORMAL if normal else WINDOWED) for normal in noises(question)]
        self.expected = len(self._intervals) * sum(tried) + _FINALISTS * RUNS

    @staticmethod
    def _work(tally: Tally, interval: int) -> int:
        return tally.timestamps(interval) * (tally.columns + _CELLS_OF_STEP)

    def passes(self) -> Iterator[None]:
        question, findings = self.findings.question, self.findings
        first = [
            Candidate(interval, bound, WINDOWED[0], normal=normal, per_column=limit)
            for interval in self._intervals
            for bound in self._bounds(interval)
            for normal in noises(question)
            for limit in per_column(bound, self.findings.tally.columns, normal=normal)
        ]
        yield from self._try(first, 1)
        second = [
            choice
            for interval in self._intervals
            for normal in noises(question)
            for best in self._best([one for one in first if (one.interval, one.normal) == (interval, normal)])
            for kind in kinds(question, interval, normal=normal)
            for choice in _with_and_without_minimum(replace(best, kind=kind))
        ]
        yield from self._try(second, 2)
        yield from self._try(findings.in_order(second)[:_FINALISTS], RUNS)
        if question.rollable and self._roll_up():
            yield from self._try_rolled(first)

    def _try_rolled(self, first: Sequence[Candidate]) -> Iterator[None]:
        """As the passes before: larger columns may want other intervals and bounds."""
        scores = self.findings.scores
        final = {one.kind: None for one in self.findings.in_order(list(scores)) if scores[one].runs >= RUNS}
        columns = len(self.findings.labels(replace(first[0], rolled=True)))
        rolled = [
            replace(one, rolled=True)
            for one in first
            if one.per_column in per_column(one.bound, columns, normal=one.normal)
        ]
        yield from self._try(rolled, 1)
        places = self.findings.in_order(rolled)[:_FINALISTS]
        tried = [
            choice
            for one in places
            for kind in dict.fromkeys([one.kind, *final])
            if kind in NORMAL or not one.normal
            for choice in _with_and_without_minimum(replace(one, kind=kind))
        ]
        yield from self._try(tried, 2)
        yield from self._try(self.findings.in_order(tried)[:_FINALISTS], RUNS)

    def _best(self, choices: Sequence[Candidate]) -> list[Candidate]:
        return self.findings.in_order(choices)[:_BOUNDS]

    def _bounds(self, interval: int) -> Sequence[int]:
        question, tally = self.findings.question, self.findings.tally
        return tally.bounds(interval) if question.bound is None else (question.bound,)

    def _roll_up(self) -> bool:
        """Whether there are columns to roll up, now that it is known which are hopeless."""
        findings = self.findings
        labels = np.array([label == OTHER for label in findings.question.labels])
        apart = (findings.scores[findings.best].columns <= HOPELESS) & ~labels
        # One alone gains nothing, unless it joins another.
        if (~apart & ~labels).any() and np.count_nonzero(~apart) >= 2:
            findings.kept = np.flatnonzero(apart)
        return findings.kept is not None

    def _try(self, choices: Iterable[Candidate], runs: int) -> Iterator[None]:
        """Run each choice until it has this many runs."""
        findings = self.findings
        wanted = [
            (choice, number)
            for choice in dict.fromkeys(replace(choice, clipped=False) for choice in choices)
            for number in range(len(findings.sums.get(choice, ())), runs)
        ]
        outcomes = self._run(findings.trial(choice, number) for choice, number in wanted)
        for (choice, _), outcome in zip(wanted, outcomes, strict=True):
            self._take(choice, outcome)
            yield

    def _take(self, choice: Candidate, outcome: Outcome) -> None:
        self.done += 1
        self._judge(choice, outcome.sums)
        if can_be_negative(choice.kind):
            self._judge(replace(choice, clipped=True), outcome.clipped)

    def _judge(self, choice: Candidate, released: Counts) -> None:
        findings = self.findings
        sums = findings.sums.setdefault(choice, [])
        sums.append(released)
        place = choice.bounding, choice.rolled
        if place not in findings.left_out:
            events = findings.tally.events
            findings.left_out[place] = 1 - int(findings.counts(choice).sum()) / events if events else 0.0
        findings.scores[choice] = score(findings.totals(choice), sums)


def _with_and_without_minimum(choice: Candidate) -> list[Candidate]:
    return [choice, replace(choice, clipped=True)] if can_be_negative(choice.kind) else [choice]

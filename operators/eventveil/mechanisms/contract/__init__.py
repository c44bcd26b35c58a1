"""The contract of mechanisms as tests: what ``Mechanism`` asks for, tried on any class, from outside.

Every kind of Eventveil and every plug-in passes or fails the same properties (``eventveil mechanisms test``).
A mechanism is a black box here: it is given counts and a noise source, and watched through its releases, its
snapshots, what it draws, and what the ledger grants it.

A failed property is a proof that the contract is broken, except for ``distinguishing``, which is wrong once
in a million runs. A passed one proves nothing beyond what was tried: small windows, one or two columns,
streams of a few timestamps. That a mechanism is private for every stream, every epsilon and every length is a
theorem, which its author states and proves in the docstring of its module; only a reader can check that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from eventveil.mechanisms.contract import behaviour, budget, distinguishing, privacy
from eventveil.mechanisms.contract.subject import Counterexample, Subject

LIMITS = (
    "What this shows: a property that failed is broken, and the counterexample says where. What it cannot"
    " show: that the mechanism is private. It tried small windows, one or two columns and short streams; a"
    " leak elsewhere, or in code that detects that it is being tested, passes. The promise rests on the proof"
    " in the module's docstring, which its author has to write, and you have to read."
)


@dataclass(frozen=True, slots=True)
class Property:
    """``check`` returns what was tried, in words; it raises Counterexample where the property fails."""

    name: str
    says: str
    check: Callable[[Subject], str]


@dataclass(frozen=True, slots=True)
class PropertyResult:
    """The outcome of one property: what was ``tried``, and a ``counterexample`` if it fails."""

    property: Property
    tried: str
    counterexample: str | None


PROPERTIES = (
    Property("statement", "the module states guarantee, assumptions, source and proof", behaviour.statement),
    Property("guarantee", "the guarantee is the one that was asked for", behaviour.guarantee),
    Property("determinism", "snapshot, counts and noise decide the release", behaviour.determinism),
    Property("resume", "a restored mechanism continues as if nothing had happened", behaviour.resume),
    Property("release", "each step gives one release, of the right shape", behaviour.release),
    Property("inputs", "wrong counts are refused and change nothing", behaviour.inputs),
    Property("states", "an invalid state is refused", behaviour.states),
    Property("state-size", "a snapshot fits the record that is planned for it", behaviour.state_size),
    Property("charges", "the ledger granted what the release says", budget.charges),
    Property("noise", "noise is drawn for what was granted, and enough of it", budget.noise),
    Property("refusal", "what the ledger refuses is not drawn", budget.refusal),
    Property("budget", "no window or horizon spends above epsilon", budget.every_sequence),
    Property("budget-long", "no window or horizon of a long run spends above epsilon", budget.long_runs),
    Property("heir", "what a change of terms does not allow is not spent", budget.heir),
    Property("hidden", "public output depends on counts through noise only", privacy.hidden),
    Property("loss", "no transcript reveals a user by more than e^epsilon", privacy.loss),
    Property("distinguishing", "two neighbours cannot be told apart too often", distinguishing.audit),
)


def examine(subject: Subject) -> Iterator[PropertyResult]:
    """Try every property, in order."""
    for one in PROPERTIES:
        yield judge(one, subject)


def judge(one: Property, subject: Subject) -> PropertyResult:
    """Try one property. Whatever a mechanism raises where it should not is a counterexample."""
    try:
        return PropertyResult(one, one.check(subject), None)
    except Counterexample as found:
        return PropertyResult(one, found.tried, str(found))
    except Exception as error:
        return PropertyResult(one, "", f"{subject.name} raised {type(error).__name__}: {error}")

"""The kinds of single values in a topology: each reads a scalar and gives its own JSON Schema.

A kind raises ``UnfitError`` with what is expected; the reader adds what was found and where.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any, Generic, TypeVar

from eventveil.model.spelling import nearest
from eventveil.topology.document import Scalar, shorten

Value = TypeVar("Value")
Schema = dict[str, Any]
# 100 years: longer durations are slips of the pen, and sums of a few stay far inside 64 bits of milliseconds.
LONGEST = 36_525 * 86_400_000
# The last millisecond that RFC 3339 can write: 9999-12-31T23:59:59.999Z.
END_OF_TIME = 253_402_300_799_999
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_CALENDAR = re.compile(r"[0-9]+ *(mo|month|months|y|year|years)")
_DURATION = re.compile(r"([0-9]{1,15})(ms|s|m|h|d|w)")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]+))?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
_WHOLE = re.compile(r"[-+]?[0-9]{1,18}")
_RATIONAL = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?|[0-9]+/[0-9]*[1-9][0-9]*")
# Other readers of YAML take 010 for eight.
_LEADING_ZERO = re.compile(r"(?:[-+]?|[0-9]+/)0[0-9]")
_NO_LEADING_ZERO = "without leading zeros, which YAML 1.1 takes for octal"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Names a schema, for ``$defs``, where it is used more than once (``eventveil.topology.schema``).
NAME_OF = "$comment"
INTERPOLATED: Schema = {NAME_OF: "interpolated", "type": "string", "pattern": r"\$\{"}


class UnfitError(ValueError):
    """A value does not fit its place. ``expected`` completes "expected ..."; ``found`` replaces the value."""

    def __init__(self, expected: str, found: str | None = None) -> None:
        super().__init__(expected)
        self.expected, self.found = expected, found


class UnavailableError(UnfitError):
    """A value that fits and cannot be had, now or here; the whole text says why, and what to do instead."""


class Kind(ABC, Generic[Value]):
    """A kind of single value."""

    @abstractmethod
    def parse(self, scalar: Scalar) -> Value:
        """The value. Raises UnfitError."""

    @abstractmethod
    def strict_schema(self) -> Schema:
        """The JSON Schema of a value that is written out; it may have a name for ``$defs``."""

    def schema(self) -> Schema:
        """The JSON Schema of a value that is written out or comes from ``${...}``."""
        strict = self.strict_schema()
        name = {NAME_OF: strict[NAME_OF]} if NAME_OF in strict else {}
        return {**name, "anyOf": [*alternatives(strict), INTERPOLATED]}


def alternatives(schema: Schema) -> list[Schema]:
    """Schemas one of which accepts what a schema accepts."""
    alone = {key: value for key, value in schema.items() if key != NAME_OF}
    return list(schema.get("anyOf", [alone]))


def is_text(scalar: Scalar) -> bool:
    """Whether a scalar may stand where text is wanted."""
    return scalar.expanded or scalar.type == "text"


def is_number(scalar: Scalar) -> bool:
    """Whether a scalar may stand where a number is wanted."""
    return scalar.expanded or not scalar.quoted


@dataclass(frozen=True)
class Text(Kind[str]):
    """Text that fully matches a pattern; ``expected`` says in words what the pattern wants."""

    expected: str
    pattern: str = r"[^\r\n]+"
    longest: int = 1000

    def parse(self, scalar: Scalar) -> str:
        """The text."""
        if not is_text(scalar) or not re.fullmatch(self.pattern, scalar.text):
            unquoted = not is_text(scalar) and scalar.type != "nothing"
            raise UnfitError(f"{self.expected}, in quotes" if unquoted else self.expected)
        if len(scalar.text) > self.longest:
            raise UnfitError(
                f"{self.expected}, at most {self.longest} characters", f"{len(scalar.text)} characters"
            )
        return scalar.text

    def strict_schema(self) -> Schema:
        """A string with the pattern."""
        name = {NAME_OF: f"text-to-{self.longest}"} if self.pattern == Text.pattern else {}
        return {**name, "type": "string", "pattern": f"^(?:{self.pattern})$", "maxLength": self.longest}


@dataclass(frozen=True)
class Secret(Kind[str]):
    """A text that is put in from a file or a variable, so that it does not stand in the topology."""

    def parse(self, scalar: Scalar) -> str:
        """The text."""
        if not scalar.expanded:
            raise UnfitError("${file:/path} or ${VARIABLE}, because secrets do not belong in the file")
        if not re.fullmatch(r"[^\r\n]{1,1000}", scalar.text):
            raise UnfitError("a text on one line, of at most 1000 characters")
        return scalar.text

    def strict_schema(self) -> Schema:
        """What is interpolated, and nothing else."""
        return INTERPOLATED


@dataclass(frozen=True)
class TopicName(Kind[str]):
    """The name of a Kafka topic."""

    def parse(self, scalar: Scalar) -> str:
        """The name."""
        if not is_text(scalar) or not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", scalar.text):
            raise UnfitError("a topic name of 1 to 249 letters, digits, dots, dashes and underscores")
        if scalar.text in {".", ".."}:
            raise UnfitError("a topic name other than . and ..")
        return scalar.text

    def strict_schema(self) -> Schema:
        """A string with Kafka's rule."""
        return {NAME_OF: "topic", "type": "string", "pattern": r"^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$"}


@dataclass(frozen=True)
class Whole(Kind[int]):
    """A whole number between two bounds, both included; ``of`` says of what, where it may be mistaken."""

    lowest: int
    highest: int
    of: str = ""

    def parse(self, scalar: Scalar) -> int:
        """The number."""
        if not is_number(scalar) or not _WHOLE.fullmatch(scalar.text):
            raise UnfitError(self._expected)
        if _LEADING_ZERO.match(scalar.text):
            raise UnfitError(f"a whole number {_NO_LEADING_ZERO}")
        value = int(scalar.text)
        if not self.lowest <= value <= self.highest:
            raise UnfitError(self._expected)
        return value

    @property
    def _expected(self) -> str:
        if self.lowest == self.highest:
            return str(self.lowest)
        of = f" of {self.of}" if self.of else ""
        return f"a whole number{of} from {self.lowest} to {self.highest}"

    def strict_schema(self) -> Schema:
        """An integer with the bounds."""
        name = f"whole-{self.lowest}-to-{self.highest}"
        return {NAME_OF: name, "type": "integer", "minimum": self.lowest, "maximum": self.highest}


#: Characters of a number in a file, and in a record, which has the same number as a fraction.
_LONGEST_WRITTEN, _LONGEST_RECORDED = 40, 200


def exact_number(text: object, longest: int = _LONGEST_RECORDED) -> Fraction | None:
    """The exact value of ``1``, ``0.05``, ``1e-3`` or ``1/3``; None for everything else.

    Also for ledgers, which may hold anything: no text takes long to read.
    """
    known = isinstance(text, str) and len(text) <= longest and _RATIONAL.fullmatch(text)
    return Fraction(text) if known and isinstance(text, str) else None


@dataclass(frozen=True)
class Exact:
    """A positive rational with the text it was written as."""

    value: Fraction
    text: str


#: The limits of a delta, in words.
DELTAS = "from 1e-30 to 1e-4, such as 1e-9"


@dataclass(frozen=True)
class Rational(Kind[Exact]):
    """An exact positive number, read from its text: ``1``, ``0.05``, ``1e-3`` or ``1/3``; never a float.

    The digits are bounded so that noise scales stay numbers that can be sampled at speed. ``told`` are the
    limits in words, where there are narrower ones than these.
    """

    highest: int
    smallest: Fraction = Fraction(1, 10**6)
    digits: int = 12
    told: str = ""

    def parse(self, scalar: Scalar) -> Exact:
        """The number and its text."""
        limits = self.told or f"above 0 and at most {self.highest}, such as 1, 0.5 or 1/3"
        expected = f"an exact number {limits}"
        value = exact_number(scalar.text, _LONGEST_WRITTEN)
        if value is None or not 0 < value <= self.highest:
            raise UnfitError(expected)
        if _LEADING_ZERO.match(scalar.text):
            raise UnfitError(f"an exact number {_NO_LEADING_ZERO}")
        if value < self.smallest:
            raise UnfitError(
                f"at least {float(self.smallest):g}" if self.told else f"at least {self.smallest}"
            )
        if max(value.numerator, value.denominator) >= 10**self.digits:
            raise UnfitError(
                f"a number with fewer digits: as a reduced fraction at most {self.digits} above and below"
            )
        return Exact(value, scalar.text)

    def strict_schema(self) -> Schema:
        """A number, or a number or fraction as text."""
        pattern = f"^(?!([0-9]+/)?0[0-9])({_RATIONAL.pattern})$"
        return {
            NAME_OF: f"number-to-{self.highest}",
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": self.highest},
                {NAME_OF: "number-as-text", "type": "string", "pattern": pattern},
            ],
        }


@dataclass(frozen=True)
class Or(Kind[Any]):
    """A word, or what another kind reads; ``only`` says where the word may stand, if not everywhere."""

    word: str
    other: Kind[Any]
    only: str = ""

    def parse(self, scalar: Scalar) -> Any:
        """The word, or what the other kind makes of it."""
        if is_text(scalar) and scalar.text == self.word:
            return self.word
        try:
            return self.other.parse(scalar)
        except UnfitError as unfit:
            either = f"{self.word}, or {unfit.expected}"
            if self.only:
                # A word that would be refused next does not come first.
                either = f"{unfit.expected}, or {self.word} ({self.only})"
            raise UnfitError(either) from None

    def strict_schema(self) -> Schema:
        """The word, or the other."""
        return {"anyOf": [{"const": self.word}, *alternatives(self.other.strict_schema())]}


@dataclass(frozen=True)
class Plain(Kind["Exact | int | str"]):
    """A value of which only a plug-in knows what it should be: a whole number, an exact one, or text."""

    def parse(self, scalar: Scalar) -> Exact | int | str:
        """A number as it is written; everything else, and what is in quotes, is text."""
        if scalar.type == "integer":
            return Whole(1 - 2**53, 2**53 - 1).parse(scalar)
        if not scalar.quoted and (scalar.type == "number" or exact_number(scalar.text)):
            return Rational(10**12).parse(scalar)
        if scalar.type == "nothing" or not re.fullmatch(r"[^\r\n]{1,1000}", scalar.text):
            raise UnfitError("a whole number, an exact number above 0, or text on one line")
        return scalar.text

    def strict_schema(self) -> Schema:
        """Any single value."""
        return {"type": ["string", "number", "boolean"]}


@dataclass(frozen=True)
class Duration(Kind[int]):
    """A length of time with its unit, in milliseconds."""

    lowest: int = 0

    def parse(self, scalar: Scalar) -> int:
        """Milliseconds."""
        match = _DURATION.fullmatch(scalar.text) if is_text(scalar) else None
        if match is None:
            bare = " (a unit is missing)" if scalar.type in {"integer", "number"} else ""
            if _CALENDAR.fullmatch(scalar.text):
                bare = "; months and years differ in length: write 31d or 366d"
            raise UnfitError(f"a duration such as 250ms, 10s, 5m, 1h, 2d or 1w{bare}")
        value = int(match[1]) * _UNITS[match[2]]
        if not self.lowest <= value <= LONGEST:
            raise UnfitError(
                "a duration above 0 and at most 100 years"
                if self.lowest
                else "a duration of at most 100 years"
            )
        return value

    def strict_schema(self) -> Schema:
        """A string with a unit."""
        number = "0*[1-9][0-9]*" if self.lowest else "[0-9]+"
        name = "duration-above-0" if self.lowest else "duration"
        return {NAME_OF: name, "type": "string", "pattern": f"^{number}(ms|s|m|h|d|w)$"}


@dataclass(frozen=True)
class Time(Kind["int | None"]):
    """A moment as RFC 3339 with a zone, in milliseconds since the epoch; ``now`` (None) where allowed."""

    now: bool = False

    def parse(self, scalar: Scalar) -> int | None:
        """Milliseconds since the Unix epoch, or None for ``now``."""
        if self.now and scalar.text == "now":
            return None
        expected = "a time such as 2013-01-01T00:00:00Z or 2013-01-01T00:00:00+01:00" + (
            ", or now" if self.now else ""
        )
        match = _TIME.fullmatch(scalar.text) if is_text(scalar) else None
        if match is None:
            raise UnfitError(expected)
        day, clock, fraction, zone = match.groups()
        if zone is None:
            raise UnfitError(f"a time with its zone, such as {day}T{clock}Z for UTC")
        if fraction and fraction[3:].strip("0"):
            raise UnfitError("a time in whole milliseconds")
        try:
            moment = datetime.fromisoformat(f"{day}T{clock}{zone.upper().replace('Z', '+00:00')}")
            whole = (moment - _EPOCH) // timedelta(milliseconds=1)
            moment.astimezone(UTC)
        except (ValueError, OverflowError):
            raise UnfitError(f"a day and a time of day that exist; {expected}") from None
        return whole + int(f"{fraction or ''}000"[:3])

    def strict_schema(self) -> Schema:
        """A string in the form of RFC 3339."""
        day, clock = "[0-9]{4}-[0-9]{2}-[0-9]{2}", "[0-9]{2}:[0-9]{2}:[0-9]{2}"
        time = day + "[Tt ]" + clock + r"(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
        pattern = f"^(now|{time})$" if self.now else f"^{time}$"
        return {NAME_OF: "time-or-now" if self.now else "time", "type": "string", "pattern": pattern}


@dataclass(frozen=True)
class Pointer(Kind[str]):
    """A JSON pointer (RFC 6901) to a field inside the event."""

    def parse(self, scalar: Scalar) -> str:
        """The pointer as written."""
        if not is_text(scalar) or not scalar.text.startswith("/"):
            raise UnfitError("a JSON pointer that starts with /, such as /user or /place/region")
        if re.search("~(?![01])", scalar.text):
            raise UnfitError("a JSON pointer in which ~ is written ~0 and a slash inside a name ~1")
        if re.search(r", */", scalar.text):
            # Also one pointer to a name that ends with a comma, which nobody means.
            raise UnfitError(f"one JSON pointer, or several in brackets: [{scalar.text}]")
        return scalar.text

    def strict_schema(self) -> Schema:
        """A string that is a pointer."""
        return {NAME_OF: "pointer", "type": "string", "pattern": "^(?!.*, */)(/([^~]|~[01])*)+$"}


@dataclass(frozen=True)
class Choice(Kind[str]):
    """One of several words. ``later`` maps words this version does not have to what to do instead.

    ``true`` and ``false`` among the words are booleans in the file.
    """

    words: tuple[str, ...]
    later: Mapping[str, str] = field(default_factory=dict)

    def parse(self, scalar: Scalar) -> str:
        """The word."""
        if scalar.text in self.words and (is_text(scalar) or scalar.type == "boolean"):
            return scalar.text
        if scalar.text in self.later:
            raise UnavailableError(self.later[scalar.text])
        near = nearest(scalar.text, self.words) if is_text(scalar) and not scalar.secret else ""
        raise UnfitError(f"{one_of(self.words)}; {near}" if near else one_of(self.words))

    def strict_schema(self) -> Schema:
        """An enumeration."""
        booleans: dict[str, object] = {"true": True, "false": False}
        return {NAME_OF: "-or-".join(self.words), "enum": [booleans.get(word, word) for word in self.words]}


@dataclass(frozen=True)
class Servers(Kind[str]):
    """A comma separated list of ``host:port``."""

    def parse(self, scalar: Scalar) -> str:
        """The list, without spaces."""
        servers = [server.strip() for server in scalar.text.split(",")]
        for server in servers:
            match = re.fullmatch(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})", server)
            if not is_text(scalar) or match is None or not 1 <= int(match[2]) <= 65535:
                raise UnfitError(
                    "host:port, or several separated by commas, such as kafka-1:9092,kafka-2:9092"
                )
        return ",".join(servers)

    def strict_schema(self) -> Schema:
        """A string with at least one ``host:port``."""
        return {"type": "string", "pattern": "^[^,]+:[0-9]{1,5}( *, *[^,]+:[0-9]{1,5})*$"}


@dataclass(frozen=True)
class Label(Kind[str]):
    """The name of a column: any text that is not empty, or a whole number."""

    def parse(self, scalar: Scalar) -> str:
        """The label's text."""
        return label(scalar)

    def strict_schema(self) -> Schema:
        """A string or an integer."""
        text = {"type": "string", "minLength": 1, "maxLength": LONGEST_LABEL}
        return {NAME_OF: "label", "anyOf": [text, {"type": "integer"}]}


LONGEST_LABEL = 1000


def label(scalar: Scalar) -> str:
    """The text of a column label. Raises UnfitError."""
    if not (is_text(scalar) or scalar.type == "integer") or not scalar.text:
        raise UnfitError("the name of a column, in quotes if YAML would take it for something else than text")
    if len(scalar.text) > LONGEST_LABEL:
        raise UnfitError(f"a name of at most {LONGEST_LABEL} characters", f"{len(scalar.text)} characters")
    return scalar.text


def one_of(words: tuple[str, ...]) -> str:
    """Words as a choice in a sentence."""
    return words[0] if len(words) == 1 else f"one of {', '.join(words)}"


def found(scalar: Scalar) -> str:
    """What a scalar is, in words, for a message; a secret stays hidden."""
    if scalar.secret:
        return "a hidden value"
    if scalar.type == "nothing" or not scalar.text:
        return "nothing (the variable in ${...} is set, but empty)" if scalar.expanded else "nothing"
    if scalar.type == "text":
        return shorten(scalar.text)
    return f"the {'boolean' if scalar.type == 'boolean' else 'number'} {scalar.text[:40]}"


def duration_text(milliseconds: int) -> str:
    """A duration in its largest whole unit, as it would be written in a topology."""
    fitting = [unit for unit, size in _UNITS.items() if milliseconds % size == 0 and unit != "w"]
    return f"{milliseconds // _UNITS[fitting[-1]]}{fitting[-1]}" if milliseconds else "0s"

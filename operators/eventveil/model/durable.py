"""Durable records: typed, closed, range-checked, with their version in front.

What is read back was written by this program, or it is refused: a missing or unknown field, another type, a
number out of range or a contradiction between fields says that the state cannot be trusted.
"""

from __future__ import annotations

import re
from threading import Lock
from typing import Annotated, Any, ClassVar, Self

import msgspec

from eventveil.model.errors import StateRefused

VERSION = 1
#: Of a record that has what came later (``Durable.NEWER``), so that earlier programs say what to do with it.
NEWER_VERSION = 2
#: A partition, an offset, a time in epoch milliseconds, a number of something.
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
#: A timestamp of a stream, of which the first one is 1; how many partitions there are.
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
#: A version of Eventveil, by the characters of PEP 440.
PROGRAM_PATTERN = r"^[0-9A-Za-z][0-9A-Za-z.!+_-]{0,39}\Z"
Program = Annotated[str, msgspec.Meta(pattern=PROGRAM_PATTERN)]
_PROGRAM = re.compile(PROGRAM_PATTERN)
_BEGINS = b'{"version":%d'


def written(default: Any) -> Any:
    """The default of a field that is always written, and without which a record is not read back."""
    return msgspec.field(default_factory=lambda: default)


class Durable(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="version",
    tag=VERSION,
):
    """A record of a changelog. Subclasses say in ``contradiction`` what types cannot."""

    #: The fields that came with NEWER_VERSION: a record has that version if it has one of them, so that one
    #: without them is what it always was.
    NEWER: ClassVar[tuple[str, ...]] = ()

    def encode(self) -> bytes:
        """JSON bytes, equal for equal records."""
        value = msgspec.json.encode(self)
        if not any(getattr(self, name) for name in self.NEWER):
            return value
        return _BEGINS % NEWER_VERSION + value.removeprefix(_BEGINS % VERSION)

    @classmethod
    def decode(cls, value: bytes, place: str) -> Self:
        """Read one back; ``place`` names it in the StateRefused that anything unexpected raises."""
        try:
            found = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
            version = bytes(found.get("version", b"null"))
            newer = bool(cls.NEWER) and version == b"%d" % NEWER_VERSION
            if not newer and version != b"%d" % VERSION:
                reads = f"{VERSION} and {NEWER_VERSION}" if cls.NEWER else f"{VERSION}"
                raise StateRefused(
                    place,
                    f"the state has version {version.decode()}, this program reads version {reads}",
                    "Run the version of Eventveil that wrote it",
                )
            if newer != any(name in found for name in cls.NEWER):
                raise unreadable(place, f"version {NEWER_VERSION} goes with {' or '.join(cls.NEWER)}")
            if newer:
                value = msgspec.json.encode({**found, "version": VERSION})
            decoder, always = _description_of(cls)
            record: Self = decoder.decode(value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise unreadable(place, str(error)) from None
        if short := [name for name in always if name not in found]:
            raise unreadable(place, f"it has no {short[0]}")
        if wrong := record.contradiction():
            raise unreadable(place, wrong)
        return record

    def contradiction(self) -> str | None:
        """What is wrong with the record, if anything."""
        return None

    def replace(self, **changes: Any) -> Self:
        """The same record with other values in some fields."""
        return msgspec.structs.replace(self, **changes)


#: How a class is read, and its fields that are always written. To find these takes a millisecond.
_Description = tuple[msgspec.json.Decoder[Any], tuple[str, ...]]
_DESCRIPTIONS: dict[type[Durable], _Description] = {}
_MAKING = Lock()


def _description_of(cls: type[Durable]) -> _Description:
    # msgspec describes a class to itself at its first use, and a second thread that comes meanwhile takes the
    # half of it for whole, and ends the process with SIGSEGV. Partitions are taken over side by side.
    found = _DESCRIPTIONS.get(cls)
    if found is None:
        with _MAKING:
            found = _DESCRIPTIONS.setdefault(cls, (msgspec.json.Decoder(cls), _always_written(cls)))
    return found


def _always_written(cls: type[Durable]) -> tuple[str, ...]:
    return tuple(
        one.encode_name for one in msgspec.structs.fields(cls) if one.default_factory is not msgspec.NODEFAULT
    )


def is_version(told: object) -> bool:
    """Whether a value can be a version of Eventveil."""
    return isinstance(told, str) and _PROGRAM.match(told) is not None


def unreadable(place: str, detail: str) -> StateRefused:
    """The refusal of a record that cannot be what this program wrote."""
    return StateRefused(
        place,
        f"the state cannot be read: {detail}",
        "Find out what damaged it; restore a backup only if it contains the last release",
    )

"""Values that events are not supposed to be: crafted ones, and mutations of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from random import Random

#: Two of these next to each other would be two other documents to code that joins values.
_BREAKOUTS = (
    b'{"user":"x","column":"a","time":1},{"user":"y","column":"b","time":2}',
    b'{"user":"x","column":"a","time":1}{"user":"y","column":"b","time":2}',
    b'{"user":"x","column":"a","time":1} {"user":"y","column":"b","time":2}',
    b'{"user":"x","column":"a","time":1}\n{"user":"y","column":"b","time":2}',
    b'{"user":"x","column":"a","extra":[',
    b']," ":"","time":1}',
    b'{"user":"x","column":"a","time":1,"open":"',
    b'","user":"y"}',
    b"", b" ", b"\n", b"\t\r\n", b",", b"]", b"[",
)  # fmt: skip
_STRINGS = (
    b'""', b'"u"', b'"a"', b'"b"', b'"7"', b'"c"', b'" u"', b'"\\u0075"', b'"\\u00e9"', b'"\xc3\xa9"',
    b'"\\ud83d\\ude00"', b'"\xf0\x9f\x98\x80"', b'"\\ud800"', b'"\\udc00\\ud800"', b'"\xed\xa0\x80"',
    b'"\xff"', b'"\xc3"', b'"\xc0\x80"', b'"\\u0000"', b'"\x00"', b'"\x01"', b'"\x7f"', b'"\t"', b'"\\q"',
    b'"\\u12"', b'"\\/"', b'"\\\\"', b'"\\"', b'"\\""', b'"7e0001"', b'"5e-10"', b'"' + b"9" * 320 + b'"',
)  # fmt: skip
_NUMBERS = (
    b"0", b"-0", b"7", b"-7", b"07", b"+7", b"7.", b".7", b"7.0", b"0.0", b"-0.0", b"7e0", b"7E+0", b"1e3",
    b"1e-3", b"1e999", b"1E+999", b"-1e999", b"1e-999", b"1e308", b"1e309", b"1e0308", b"1e00000309",
    b"0e999", b"0.1e310", b"0.0001e310", b"1" + b"0" * 307, b"1" + b"0" * 308, b"1" + b"0" * 400,
    b"9" * 250 + b"e59", b"9" * 250 + b"e50", b"9" * 250 + b".5E58", b"0." + b"0" * 300 + b"1e5",
    b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808", b"-9223372036854775809",
    b"18446744073709551615", b"18446744073709551616", b"9007199254740991", b"9007199254740992",
    b"-9007199254740991", b"-9007199254740992", b"1000", b"1234567890123", b"1e", b"1e+", b"-", b"--1",
    b"0x10", b"1_000", b"1 2",
)  # fmt: skip
_OTHERS = (
    b"null", b"true", b"false", b"nul", b"True", b"NaN", b"Infinity", b"-Infinity", b"undefined", b"[]",
    b"{}", b"[1,]", b'{"a":1,}', b'{"a"}', b'{"user":"inner"}', b'{"section":"a"}', b'{"section":1}',
    b'[{"section":"a"}]', b"[[[[1]]]]", b"/**/1", b"'u'",
)  # fmt: skip
_TIMES = (
    b'"1970-01-01T00:00:01Z"', b'"1970-01-01T00:00:01.5Z"', b'"1970-01-01t00:00:01z"',
    b'"1970-01-01 00:00:01+01:00"', b'"1970-01-01T00:00:60Z"', b'"1970-01-01T24:00:00Z"',
    b'"1970-13-01T00:00:01Z"', b'"1970-01-01T00:00:01"', b'"1970-01-01T00:00:01.Z"',
    b'"1970-01-01T00:00:01-23:59"', b'"1970-01-01T00:00:01+24:00"', b'"0001-01-01T00:00:00+00:01"',
    b'"0001-01-01T00:00:00Z"', b'"9999-12-31T23:59:59.999Z"', b'"9999-12-31T23:59:59-00:01"',
    b'"0000-01-01T00:00:00Z"', b'"1970-02-30T00:00:00Z"', b'"1970-01-01T00:00:01.123456789Z"',
    b'"\\u0031970-01-01T00:00:01Z"', b'"1970-01-01T00:00: 1Z"', b'"1970-01-01T00:00:1Z"', b'"1000"',
)  # fmt: skip
_KEYS = (
    b'"user"', b'"column"', b'"time"', b'"us\\u0065r"', b'"User"', b'"user "', b'""', b'"page"', b'"section"',
    b'"\xc3\xa9"', b'"\xff"', b'"\\ud800"', b'"e999"', b'"x"', b"user", b"1",
)  # fmt: skip
_VALUES = (*_STRINGS, *_NUMBERS, *_OTHERS, *_TIMES)
_TOKENS = (
    *_VALUES, *_KEYS, b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\n", b"\r", b" ", b"\x00",
    b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"e", b"E", b"+", b"-", b".", b"e999", b"//", b"#",
)  # fmt: skip

#: What a model's strings and digits are split off by, and what they give way to.
_CONTENT = re.compile(rb"((?<=\")[^\"]*(?=\")|[0-9]+)")
_CONTENTS = (
    b"", b"0", b"7", b"07", b"00", b"-7", b"7.0", b"999", b"1234567", b"12345678", b"123456789",
    b"9007199254740991", b"1234567890123456", b"12345678901234567", b"0" * 16, b"1" + b"0" * 16, b"/", b":",
    b"1/", b"1:", b"1 ", b" 1", b"a", b"b", b"u1", b"x" * 63, b"x" * 64, b'"', b'\\"', b"\\", b"\\u0041",
    b"\n", b"\x00", b"\x1f", b"\x7f", b"\xc3\xa9", b"\xff", b"\xed\xa0\x80", b"1970-01-01T00:00:01Z",
    b'","user":"', b'":"', b'{"', b'"}', b"user", b"column", b"time",
)  # fmt: skip


@cache
def crafted() -> tuple[bytes | None, ...]:
    """Every token in every place of an event, and what takes a parser to its limits."""
    values: list[bytes | None] = [None, *_BREAKOUTS]
    event = {b'"user"': b'"u"', b'"column"': b'"a"', b'"time"': b"1000"}
    for key in (*event, b'"extra"'):
        for value in (*_VALUES, *_TOKENS):
            values.append(_object({**event, key: value}.items()))
            values.append(_object([*event.items(), (key, value)]))
            values.append(_object([(key, value), *event.items()]))
            values.append(_object([*event.items(), (b'"extra"', b"[" + value + b"]")]))
    whole = _object(event.items())
    for token in _TOKENS:
        values += [token, token + whole, whole + token, b"[" + whole + token, whole[:-1] + token]
        values.append(_object([*event.items(), (token, b"1")]))
    for depth in (900, 998, 1000, 1019, 1020, 1021, 1022, 1023, 1024, 1025, 1100, 20_000):
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
            deep = opening * depth + b"1" + closing * depth
            values += [deep, _object([*event.items(), (b'"extra"', deep)])]
    for size in (900, 1000, 1023, 1024, 2000):
        values.append(_object([*event.items(), (b'"extra"', b'"' + b"x" * size + b'"')]))
    return tuple(values)


def _object(members: object) -> bytes:
    return b"{" + b",".join(key + b":" + value for key, value in members) + b"}"  # type: ignore[attr-defined]


@cache
def _seeds() -> list[bytes]:
    return [value for value in crafted() if value is not None and len(value) < 2000]


def mutated(chance: Random) -> Iterator[bytes | None]:
    """Values without end: grown from the grammar, or one of the crafted ones with a few changes."""
    seeds = _seeds()
    while True:
        value = _grown(chance) if chance.random() < 0.5 else chance.choice(seeds)
        for _ in range(chance.choice((0, 0, 1, 1, 2, 4))):
            value = _changed(value, chance)
        yield value


def similar(chance: Random, number: int) -> list[bytes | None]:
    """Values most of which differ in the contents of strings and in digits only, some in a little more."""
    model = _grown(chance) if chance.random() < 0.8 else chance.choice(_seeds())
    pieces = _CONTENT.split(model)
    values: list[bytes | None] = []
    for _ in range(number):
        value = b"".join(
            chance.choice(_CONTENTS) if chance.random() < 0.3 and _CONTENT.fullmatch(piece) else piece
            for piece in pieces
        )
        values.append(_changed(value, chance) if chance.random() < 0.2 else value)
    return values


def _grown(chance: Random) -> bytes:
    space = chance.choice((b"", b"", b" ", b"\n", b"\t "))
    members = [
        (b'"user"', chance.choice((b'"u%d"', b"%d")) % chance.randrange(50)),
        (b'"column"', chance.choice((b'"a"', b'"b"', b'"c"', b"7", b"8", b"-7"))),
        (b'"time"', chance.choice((b"%d" % chance.randrange(900, 1100), chance.choice(_TIMES)))),
        (
            b'"page"',
            chance.choice((b'{"section":"a","n":"u1"}', b'{"n":"","section":"b"}', chance.choice(_OTHERS))),
        ),
    ]
    for _ in range(chance.choice((0, 0, 1, 2))):
        member = (chance.choice(_KEYS), chance.choice(_VALUES))
        members.insert(chance.randrange(len(members) + 1), member)
    joint = space + b"," + space
    return b"{" + space + joint.join(key + space + b":" + space + value for key, value in members) + b"}"


def _changed(value: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(value) + 1)
    match chance.randrange(5):
        case 0:
            return value[:at] + chance.choice(_TOKENS) + value[at:]
        case 1:
            return value[:at] + value[at + chance.randrange(1, 4) :]
        case 2:
            return value[:at] + bytes([chance.randrange(256)]) + value[at + 1 :]
        case 3:
            return value[:at] + bytes([chance.choice(b'{}[],:"\\0e')]) + value[at + 1 :]
        case _:
            other = chance.randrange(len(value) + 1)
            return value[:at] + value[other:]

"""Numbers for short byte strings, many at a time: a dictionary in arrays.

A string and an end mark, filled up with zeros, are one or more words of eight bytes: different strings,
different words. A hash of the words finds a place in a table of numbers; whether the number is that of the
string is decided by all of its words. A dictionary of Python waits for memory three or four times a look-up,
one look-up after the other; here the waits of a whole chunk overlap.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
#: The longest string, in bytes: with its end mark it takes eight words.
LONGEST = 63
_END = "\1"
_REBUILT_AT_ONCE = 1 << 16
#: By the number of bytes of a word that belong to the string and its end mark.
_MASKS = np.array([(1 << 8 * used) - 1 for used in range(9)], np.uint64)
#: Odd factors, drawn like the hashes of Python's own dictionaries: nobody can choose strings that collide.
_FACTORS = np.array([hash(f"factor {word}") % 2**63 * 2 + 1 for word in range(LONGEST // 8 + 1)], np.uint64)


def words_of(texts: Sequence[str]) -> Words:
    """The words of strings of at most LONGEST bytes, a row for each, as many as the longest needs."""
    joined = _END.join(texts) + _END
    data = joined.encode()
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    if len(data) != len(joined):
        lengths = np.fromiter((len(text.encode()) for text in texts), np.int64, len(texts))
    lengths += 1
    starts = np.cumsum(lengths) - lengths
    count = (int(lengths.max(initial=1)) + 7) // 8
    data += bytes(8 * count)
    # Eight bytes from every place on; "<": the first byte is the lowest.
    windows = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
    found = np.empty((len(texts), count), np.uint64)
    for word in range(count):
        used = np.clip(lengths - 8 * word, 0, 8)
        np.bitwise_and(windows[starts + 8 * word * (used > 0)], _MASKS[used], out=found[:, word])
    return found


class Numbers:
    """Numbers from ``first`` on, by words: each chunk's new ones get the next, as many as are new."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._known = np.zeros((16, 1), np.uint64)
        self._size = 0
        self._clear(4)

    def _clear(self, bits: int) -> None:
        self._bits = bits
        # The index of what is known, plus one; zero is a free place.
        self._table = np.zeros(1 << bits, np.uint32)

    def __len__(self) -> int:
        """How many there are."""
        return self._size

    def of(self, words: Words) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The number of each row, and the rows that were new, whose numbers are the next ones."""
        count, size = len(words), self._size
        words = self._make_room(words)
        # For now a row that is new has its own index behind all that is known; of equal ones one will do.
        self._known[size : size + count] = words
        found, places = self._enter(words, np.arange(size, size + count))
        new = np.flatnonzero(found == np.arange(size, size + count))
        self._known[size : size + len(new)] = words[new]
        final = np.arange(size, size + count)
        final[new] = np.arange(size, size + len(new))
        self._table[places[new]] = final[new] + 1
        self._size += len(new)
        late = found >= size
        found[late] = final[found[late] - size]
        return found + self._first, new

    def _make_room(self, words: Words) -> Words:
        """Room for that many more, all as wide as the widest."""
        width = max(words.shape[1], self._known.shape[1])
        need = self._size + len(words)
        if width > self._known.shape[1] or need > len(self._known):
            known = np.zeros((max(need, len(self._known) * 3 // 2), width), np.uint64)
            known[: self._size, : self._known.shape[1]] = self._known[: self._size]
            self._known = known
        bits = self._bits
        while 3 * need > 2 << bits:
            bits += 1
        if bits > self._bits:
            self._rebuild(bits)
        if words.shape[1] < width:
            words = np.concatenate([words, np.zeros((len(words), width - words.shape[1]), np.uint64)], axis=1)
        return words

    def _rebuild(self, bits: int) -> None:
        self._clear(bits)
        for start in range(0, self._size, _REBUILT_AT_ONCE):
            indices = np.arange(start, min(start + _REBUILT_AT_ONCE, self._size))
            self._enter(self._known[indices], indices)

    def _enter(self, words: Words, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The index of what equals each row, the row's own of ``indices`` if nothing did; and its place."""
        # Words beyond the end of a string are zero and do not matter: wider rows fall on the same places.
        sums = (words * _FACTORS[: words.shape[1]]).sum(axis=1, dtype=np.uint64)
        places = ((sums ^ sums >> np.uint64(32)) * _FACTORS[0] >> np.uint64(64 - self._bits)).astype(np.int64)
        found = np.empty(len(words), np.int64)
        waiting = np.arange(len(words))
        while waiting.size:
            at = places[waiting]
            free = self._table[at] == 0
            self._table[at[free]] = indices[waiting[free]] + 1
            there = self._table[at].astype(np.int64) - 1
            same = np.ones(len(waiting), bool)
            for word in range(words.shape[1]):
                same &= self._known[there, word] == words[waiting, word]
            found[waiting[same]] = there[same]
            waiting = waiting[~same]
            places[waiting] = places[waiting] + 1 & len(self._table) - 1
        return found, places

    def first_words(self) -> Words:
        """The first word of each."""
        return self._known[: self._size, 0]

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Forget all but those, a flag for each; they are numbered anew, in the same order."""
        self._known = self._known[: self._size][kept]
        self._size = len(self._known)
        self._known = np.concatenate([self._known, np.zeros((16, self._known.shape[1]), np.uint64)])
        bits = 4
        while 3 * self._size > 2 << bits:
            bits += 1
        self._rebuild(bits)

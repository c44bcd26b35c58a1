"""Numbers for short byte strings, many at a time: a dictionary in arrays.

A string and an end mark, filled up with zeros, are one or more words of eight bytes: different strings,
different words. A hash of the words finds a place in a table of numbers; whether the number is that of the
string is decided by all of its words. A dictionary of Python waits for memory three or four times a look-up,
one look-up after the other; here the waits of a whole chunk overlap.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
#: The longest string, in bytes: with its end mark it takes eight words.
LONGEST = 63
#: This many bytes must follow a text, for its words to be read at once.
BEHIND = 8 * (LONGEST // 8 + 1)
_REBUILT_AT_ONCE = 1 << 16
#: By the number of bytes of a word that belong to the string.
_MASKS = np.array([(1 << 8 * used) - 1 for used in range(9)], np.uint64)
#: The end mark of a string by the number of further bytes. A whole word, and what is behind the end (-1),
#: have none.
_ENDS = np.array([*(1 << 8 * used for used in range(8)), 0, 0], np.uint64)
#: Secret, so that nobody can choose strings that collide: one for each half of a word, and one more.
_FACTORS = np.array([secrets.randbits(64) for _ in range(2 * (LONGEST // 8 + 1) + 1)], np.uint64)


class Texts:
    """Strings of a chunk in UTF-8: parts of ``data``, behind the last of which are BEHIND more bytes."""

    def __init__(self, data: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        self._data, self._starts, self.lengths = data, starts, lengths

    @classmethod
    def of(cls, texts: Sequence[str]) -> Texts:
        """These strings."""
        joined = "".join(texts)
        data = joined.encode()
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        if len(data) != len(joined):
            lengths = np.fromiter((len(text.encode()) for text in texts), np.int64, len(texts))
        return cls(data + bytes(BEHIND), np.cumsum(lengths) - lengths, lengths)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.lengths)

    def __iter__(self) -> Iterator[bytes]:
        """Each of them."""
        data = self._data
        for start, length in zip(self._starts.tolist(), self.lengths.tolist(), strict=True):
            yield data[start : start + length]

    def at(self, rows: NDArray[np.int64]) -> list[bytes]:
        """Those in these rows."""
        return [*Texts(self._data, self._starts[rows], self.lengths[rows])]

    def words(self) -> Words:
        """A row of words for each, as many as the longest needs; those above LONGEST bytes as if empty."""
        windows = windows_of(self._data)
        lengths = np.where(self.lengths > LONGEST, 0, self.lengths)
        found = np.empty((len(lengths), int(lengths.max(initial=0)) // 8 + 1), np.uint64)
        for word in range(found.shape[1]):
            left = np.minimum(np.maximum(lengths - 8 * word, -1), 8)
            found[:, word] = windows[self._starts + 8 * word] & _MASKS[np.maximum(left, 0)] | _ENDS[left]
        return found


def windows_of(data: bytes | bytearray) -> NDArray[np.uint64]:
    """Eight bytes from every place on, the first byte being the lowest."""
    return np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))


class Numbers:
    """Numbers from ``first`` on, by words: each chunk's new ones get the next, as many as are new."""

    def __init__(self, first: int, room: int = 1) -> None:
        """A table with ``room`` times the places takes that much more memory, and fewer steps to look up."""
        self._first, self._room = first, room
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

    def find(self, words: Words) -> NDArray[np.int64]:
        """The number of each row, or -1 if it has none."""
        width = self._known.shape[1]
        wide = words[:, width:].any(axis=1)
        words = _widened(words[:, :width], width)
        places = self._places(words)
        found = self._table[places].astype(np.int64) - 1
        # Where nobody is, nobody is to be found further on; index -1 is there, and is compared with anybody.
        waiting = np.flatnonzero((found >= 0) & ~self._equal(found, words, slice(None)))
        while waiting.size:
            places[waiting] = places[waiting] + 1 & len(self._table) - 1
            found[waiting] = there = self._table[places[waiting]].astype(np.int64) - 1
            waiting = waiting[(there >= 0) & ~self._equal(there, words, waiting)]
        found[wide] = -1
        return np.where(found < 0, -1, found + self._first)

    def _make_room(self, words: Words) -> Words:
        """Room for that many more, all as wide as the widest."""
        width = max(words.shape[1], self._known.shape[1])
        need = self._size + len(words)
        if width > self._known.shape[1] or need > len(self._known):
            known = np.zeros((max(need, len(self._known) * 3 // 2), width), np.uint64)
            known[: self._size, : self._known.shape[1]] = self._known[: self._size]
            self._known = known
        bits = self._bits
        while 3 * need * self._room > 2 << bits:
            bits += 1
        if bits > self._bits:
            self._rebuild(bits)
        return _widened(words, width)

    def _rebuild(self, bits: int) -> None:
        self._clear(bits)
        for start in range(0, self._size, _REBUILT_AT_ONCE):
            indices = np.arange(start, min(start + _REBUILT_AT_ONCE, self._size))
            self._enter(self._known[indices], indices)

    def _enter(self, words: Words, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The index of what equals each row, the row's own of ``indices`` if nothing did; and its place."""
        places = self._places(words)
        found = np.empty(len(words), np.int64)
        waiting = np.arange(len(words))
        while waiting.size:
            at = places[waiting]
            free = np.flatnonzero(self._table[at] == 0)
            if free.size:
                self._table[at[free]] = indices[waiting[free]] + 1
            there = self._table[at].astype(np.int64) - 1
            found[waiting] = there
            waiting = waiting[~self._equal(there, words, waiting)]
            places[waiting] = places[waiting] + 1 & len(self._table) - 1
        return found, places

    def _equal(
        self, known: NDArray[np.int64], words: Words, rows: NDArray[np.int64] | slice
    ) -> NDArray[np.bool_]:
        """Which of these rows of words are what is known under these indices; one word after the other."""
        same: NDArray[np.bool_] = self._known[known, 0] == words[rows, 0]
        for word in range(1, words.shape[1]):
            same &= self._known[known, word] == words[rows, word]
        return same

    def _places(self, words: Words) -> NDArray[np.int64]:
        """Where in the table to begin to look."""
        # Multilinear hashing of 32 bits at a time by 64 secret ones (Lemire and Kaser, "Strongly universal
        # string hashing is fast", Computer Journal 2014): of the sum, the upper bits. Products of whole words
        # would not do, for what differs in their last byte only would differ in the sum's last byte only.
        # Words beyond the end of a string are zero and do not matter: wider rows fall on the same places.
        halves = np.ascontiguousarray(words).view(np.uint32)
        sums = np.full(len(words), _FACTORS[-1])
        for half in range(halves.shape[1]):
            sums += halves[:, half] * _FACTORS[half]
        return (sums >> np.uint64(64 - self._bits)).astype(np.int64)

    def first_words(self) -> Words:
        """The first word of each."""
        return self._known[: self._size, 0]

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Forget all but those, a flag for each; they are numbered anew, in the same order."""
        self._known = self._known[: self._size][kept]
        self._size = len(self._known)
        self._known = np.concatenate([self._known, np.zeros((16, self._known.shape[1]), np.uint64)])
        bits = 4
        while 3 * self._size * self._room > 2 << bits:
            bits += 1
        self._rebuild(bits)


def _widened(words: Words, width: int) -> Words:
    more = width - words.shape[1]
    return np.concatenate([words, np.zeros((len(words), more), np.uint64)], axis=1) if more > 0 else words

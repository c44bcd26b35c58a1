//! Plain documents, read without a call for each part: text without escapes, numbers without exponents.
//!
//! This is faster than the visitors of `document`, and what it does not take is put to those. It
//! checks every byte too, and may be more careful than they are, but never less: `python -m tests.fuzz`
//! compares what it reads with the rules.

use std::borrow::Cow;

use crate::document::{Found, Kind, Place, DEEPEST};

/// Digits before the point: below a double's end by far.
const MOST_DIGITS: usize = 200;
/// Digits of an integer that is surely one of 64 bits.
const MOST_OF_INTEGER: usize = 18;
/// Each byte of a word 1, and the highest bit of each.
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHEST: u64 = ONES << 7;

/// The fields of a document, which is UTF-8, into `found`; None if it is not plain, or none.
pub fn read<'de>(place: &Place, text: &'de [u8], found: &mut [Found<'de>]) -> Option<()> {
    let mut scan = Scan { rest: text };
    scan.read(place, found, DEEPEST)?;
    (scan.next().is_none() && found.iter().all(|one| *one != Found::Nothing)).then_some(())
}

/// Reads a text up to its end; `rest` is what of it is still to be read.
struct Scan<'de> {
    rest: &'de [u8],
}

impl<'de> Scan<'de> {
    /// The next byte that is no white space.
    #[inline(always)]
    fn next(&mut self) -> Option<u8> {
        loop {
            let (first, rest) = self.rest.split_first()?;
            self.rest = rest;
            if !matches!(first, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(*first);
            }
        }
    }

    #[inline(always)]
    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    /// What is in a string whose first quote was read; None if there is an escape in it.
    #[inline(always)]
    fn string(&mut self) -> Option<&'de [u8]> {
        let text = self.rest;
        let mut at = 0;
        while let Some(word) = text[at..].first_chunk() {
            let special = special(u64::from_le_bytes(*word));
            if special != 0 {
                // The lowest one is one: only above it may bits be borrowed.
                at += special.trailing_zeros() as usize / 8;
                return self.ends(at);
            }
            at += 8;
        }
        at += text[at..].iter().position(|byte| matches!(byte, 0..=31 | b'"' | b'\\'))?;
        self.ends(at)
    }

    /// The string that the special byte here ends, if it is a quote.
    #[inline(always)]
    fn ends(&mut self, at: usize) -> Option<&'de [u8]> {
        let (inside, rest) = self.rest.split_at(at);
        self.rest = rest.strip_prefix(b"\"")?;
        Some(inside)
    }

    /// A number with this first byte: an integer, or None if it has a fraction or many digits.
    #[inline(always)]
    fn number(&mut self, first: u8) -> Option<Option<i64>> {
        let (text, negative) = (self.rest, first == b'-');
        let (first, mut at) = if negative { (*text.first()?, 1) } else { (first, 0) };
        if !first.is_ascii_digit() {
            return None;
        }
        let (mut number, begin) = (i64::from(first & 15), at);
        while let Some(digit) = text.get(at).filter(|byte| byte.is_ascii_digit()) {
            number = number.wrapping_mul(10).wrapping_add(i64::from(digit & 15));
            at += 1;
        }
        let digits = at - begin + 1;
        if (first == b'0' && digits > 1) || digits > MOST_DIGITS {
            return None;
        }
        let whole = text.get(at) != Some(&b'.');
        if !whole {
            let begin = at + 1;
            at = begin + text[begin..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if at == begin {
                return None;
            }
        }
        if matches!(text.get(at), Some(b'e' | b'E')) {
            return None;
        }
        self.rest = &text[at..];
        // Of -0 parsers make a double.
        let sure = whole && digits <= MOST_OF_INTEGER && !(negative && number == 0);
        Some(sure.then_some(if negative { -number } else { number }))
    }

    fn word(&mut self, rest: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(rest)?;
        Some(())
    }

    /// A value that nobody asked for, down to so many levels.
    fn skip(&mut self, depth: u32) -> Option<()> {
        match self.next()? {
            b'"' => self.string().map(drop),
            b't' => self.word(b"rue"),
            b'f' => self.word(b"alse"),
            b'n' => self.word(b"ull"),
            b'[' => self.skip_list(depth.checked_sub(1)?),
            b'{' => self.members(|scan, _| scan.skip(depth.checked_sub(1)?)),
            first => self.number(first).map(drop),
        }
    }

    fn skip_list(&mut self, depth: u32) -> Option<()> {
        let elements = self.rest;
        if self.next()? == b']' {
            return Some(());
        }
        self.rest = elements;
        loop {
            self.skip(depth)?;
            match self.next()? {
                b',' => {}
                b']' => return Some(()),
                _ => return None,
            }
        }
    }

    /// The members of an object whose brace was read: `take` reads the value of each key.
    #[inline(always)]
    fn members(&mut self, mut take: impl FnMut(&mut Self, &'de [u8]) -> Option<()>) -> Option<()> {
        match self.next()? {
            b'}' => return Some(()),
            b'"' => {}
            _ => return None,
        }
        loop {
            let key = self.string()?;
            self.expect(b':')?;
            take(self, key)?;
            match self.next()? {
                b',' => self.expect(b'"')?,
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    fn read(&mut self, place: &Place, found: &mut [Found<'de>], depth: u32) -> Option<()> {
        match place {
            Place::Field(number, kind) => {
                found[*number] = self.field(*kind)?;
                Some(())
            }
            Place::Object(wanted) => {
                self.expect(b'{')?;
                let (depth, mut seen) = (depth.checked_sub(1)?, 0u64);
                self.members(|scan, key| {
                    let Some(at) = wanted.iter().position(|(one, _)| one.as_bytes() == key) else {
                        return scan.skip(depth);
                    };
                    if seen & (1 << at) != 0 {
                        return None;
                    }
                    seen |= 1 << at;
                    scan.read(&wanted[at].1, found, depth)
                })
            }
        }
    }

    fn field(&mut self, kind: Kind) -> Option<Found<'de>> {
        match self.next()? {
            b'"' if kind != Kind::Integer => Some(Found::Text(Cow::Borrowed(self.string()?))),
            first if kind != Kind::Text => Some(Found::Integer(self.number(first)??)),
            _ => None,
        }
    }
}

/// The highest bit of each byte that cannot stand in a string as it is: a quote, a backslash, a control
/// character.
#[inline(always)]
fn special(word: u64) -> u64 {
    let (quote, backslash) = (word ^ (ONES * b'"' as u64), word ^ (ONES * b'\\' as u64));
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    (zero(quote) | zero(backslash) | (word.wrapping_sub(ONES * 32) & !word)) & HIGHEST
}

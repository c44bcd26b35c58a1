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
    let behind = Rest(text).read(place, found, DEEPEST)?;
    (behind.next().is_none() && found.iter().all(|one| *one != Found::Nothing)).then_some(())
}

/// What of a text is still to be read. What was read is given with the rest behind it, which so stays in
/// registers.
#[derive(Clone, Copy)]
struct Rest<'de>(&'de [u8]);

impl<'de> Rest<'de> {
    /// The next byte that is no white space.
    #[inline(always)]
    fn next(mut self) -> Option<(u8, Self)> {
        loop {
            let (first, rest) = self.0.split_first()?;
            self = Rest(rest);
            if !matches!(first, b' ' | b'\n' | b'\r' | b'\t') {
                return Some((*first, self));
            }
        }
    }

    #[inline(always)]
    fn expect(self, byte: u8) -> Option<Self> {
        self.next().filter(|(found, _)| *found == byte).map(|(_, rest)| rest)
    }

    #[inline(always)]
    fn word(self, word: &[u8]) -> Option<Self> {
        self.0.strip_prefix(word).map(Rest)
    }

    /// What is in a string whose first quote was read; None if there is an escape in it.
    #[inline(always)]
    fn string(self) -> Option<(&'de [u8], Self)> {
        let text = self.0;
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
    fn ends(self, at: usize) -> Option<(&'de [u8], Self)> {
        let (inside, rest) = self.0.split_at(at);
        Some((inside, Rest(rest).word(b"\"")?))
    }

    /// A number with this first byte: an integer, or None if it has a fraction or many digits.
    #[inline(always)]
    fn number(self, first: u8) -> Option<(Option<i64>, Self)> {
        let (text, negative) = (self.0, first == b'-');
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
        // Of -0 parsers make a double.
        let sure = whole && digits <= MOST_OF_INTEGER && !(negative && number == 0);
        Some((sure.then_some(if negative { -number } else { number }), Rest(&text[at..])))
    }

    /// A value that nobody asked for, down to `depth` levels, at most `DEEPEST`. There is no call for a level:
    /// a producer may nest as many as it likes.
    fn skip(self, depth: u32) -> Option<Self> {
        // What is open, innermost first: a bit for each, set for an object.
        let (mut open, mut objects, mut rest) = (0, 0u128, self);
        loop {
            let (first, behind) = rest.next()?;
            rest = match first {
                b'"' => behind.string()?.1,
                b't' => behind.word(b"rue")?,
                b'f' => behind.word(b"alse")?,
                b'n' => behind.word(b"ull")?,
                b'[' | b'{' if open == depth => return None,
                b'[' => match behind.next()? {
                    (b']', behind) => behind,
                    _ => {
                        (open, objects, rest) = (open + 1, objects << 1, behind);
                        continue;
                    }
                },
                b'{' => match behind.next()? {
                    (b'}', behind) => behind,
                    (b'"', behind) => {
                        (open, objects, rest) = (open + 1, objects << 1 | 1, behind.key()?);
                        continue;
                    }
                    _ => return None,
                },
                first => behind.number(first)?.1,
            };
            loop {
                if open == 0 {
                    return Some(rest);
                }
                match (rest.next()?, objects & 1) {
                    ((b',', behind), 0) => rest = behind,
                    ((b',', behind), _) => rest = behind.expect(b'"')?.key()?,
                    ((b']', behind), 0) | ((b'}', behind), 1) => {
                        (open, objects, rest) = (open - 1, objects >> 1, behind);
                        continue;
                    }
                    _ => return None,
                }
                break;
            }
        }
    }

    /// What is behind a key whose first quote was read, and the colon after it.
    #[inline(always)]
    fn key(self) -> Option<Self> {
        self.string()?.1.expect(b':')
    }

    /// The members of an object whose brace was read: `take` reads the value of each key.
    #[inline(always)]
    fn members(self, mut take: impl FnMut(&'de [u8], Self) -> Option<Self>) -> Option<Self> {
        let mut rest = match self.next()? {
            (b'}', behind) => return Some(behind),
            (b'"', behind) => behind,
            _ => return None,
        };
        loop {
            let (key, behind) = rest.string()?;
            let behind = take(key, behind.expect(b':')?)?;
            // Most writers put no space between the two.
            if let Some(behind) = behind.word(b",\"") {
                rest = behind;
                continue;
            }
            match behind.next()? {
                (b',', behind) => rest = behind.expect(b'"')?,
                (b'}', behind) => return Some(behind),
                _ => return None,
            }
        }
    }

    fn read(self, place: &Place, found: &mut [Found<'de>], depth: u32) -> Option<Self> {
        match place {
            Place::Field(number, kind) => {
                let (field, rest) = self.field(*kind)?;
                found[*number] = field;
                Some(rest)
            }
            Place::Object(wanted) => {
                let (depth, mut seen) = (depth.checked_sub(1)?, 0u64);
                self.expect(b'{')?.members(|key, rest| {
                    let Some(at) = wanted.iter().position(|(one, _)| are_same(one.as_bytes(), key)) else {
                        return rest.skip(depth);
                    };
                    if seen & (1 << at) != 0 {
                        return None;
                    }
                    seen |= 1 << at;
                    rest.read(&wanted[at].1, found, depth)
                })
            }
        }
    }

    #[inline(always)]
    fn field(self, kind: Kind) -> Option<(Found<'de>, Self)> {
        match self.next()? {
            (b'"', rest) if kind != Kind::Integer => {
                rest.string().map(|(text, rest)| (Found::Text(Cow::Borrowed(text)), rest))
            }
            (first, rest) if kind != Kind::Text => {
                let (number, rest) = rest.number(first)?;
                Some((Found::Integer(number?), rest))
            }
            _ => None,
        }
    }
}

/// Whether two keys are the same. They are short: the call of a library costs more than to compare them here.
#[inline(always)]
fn are_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one == other)
}

/// The highest bit of each byte that cannot stand in a string as it is: a quote, a backslash, a control
/// character.
#[inline(always)]
fn special(word: u64) -> u64 {
    // With bit 1 flipped a quote is a space, and so the first one behind the control characters.
    let below = (word ^ (ONES * 2)).wrapping_sub(ONES * (b' ' as u64 + 1));
    let backslash = (word ^ (ONES * b'\\' as u64)).wrapping_sub(ONES);
    (below | backslash) & !word & HIGHEST
}

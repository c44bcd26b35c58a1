//! Plain documents, read without a call for each part: text without escapes, numbers without exponents.
//!
//! This is faster than the visitors of `document`, and what it does not take is put to those. It
//! checks every byte too, and may be more careful than they are, but never less: `python -m tests.fuzz`
//! compares what it reads with the rules.

use std::borrow::Cow;

use crate::document::{Found, Kind, Member, Place, DEEPEST};

/// Digits before the point: below a double's end by far.
const MOST_DIGITS: usize = 200;
/// Digits of an integer that is surely one of 64 bits.
const MOST_OF_INTEGER: usize = 18;
/// Each byte of a word 1, and the highest bit of each.
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHEST: u64 = ONES << 7;

/// The fields of a document into `found`; None if it is not plain, or none.
pub fn read<'de>(place: &Place, text: &'de [u8], found: &mut [Found<'de>]) -> Option<()> {
    let Place::Object(wanted) = place else { return None };
    let behind = Rest(text).object(wanted, found, DEEPEST - 1)?;
    let all = !found.iter().any(|one| matches!(one, Found::Nothing));
    (behind.next().is_none() && all).then_some(())
}

/// A key as most writers have it, with the quote and the colon behind it.
#[derive(Debug)]
pub struct Written {
    text: Box<[u8]>,
    /// The first eight bytes, and which bits of a text are to be compared with them.
    first: u64,
    mask: u64,
}

impl Written {
    pub fn of(key: &str) -> Self {
        let text: Box<[u8]> = [key.as_bytes(), b"\":"].concat().into();
        let mut first = [0; 8];
        first.iter_mut().zip(&text).for_each(|(to, byte)| *to = *byte);
        let mask = u64::MAX >> (64 - 8 * text.len().min(8));
        // What has to be escaped never stands in a text as it is: no bits of any text are these.
        let plain = key.bytes().all(|byte| !matches!(byte, 0..=31 | b'"' | b'\\'));
        let (first, mask) = if plain { (u64::from_le_bytes(first), mask) } else { (1, 0) };
        Written { text, first, mask }
    }

    /// What is behind it in a text that begins with it, and with this word.
    #[inline(always)]
    fn strip<'de>(&self, text: &'de [u8], word: u64) -> Option<Rest<'de>> {
        if word & self.mask != self.first {
            return None;
        }
        let behind = text.get(self.text.len()..)?;
        (self.text.len() <= 8 || text[8..].starts_with(&self.text[8..])).then_some(Rest(behind))
    }
}

/// What of a text is still to be read. What was read is given with the rest behind it, which so stays in
/// registers.
#[derive(Clone, Copy)]
struct Rest<'de>(&'de [u8]);

impl<'de> Rest<'de> {
    /// The next byte that is no white space.
    #[inline(always)]
    fn next(self) -> Option<(u8, Self)> {
        let (first, rest) = self.0.split_first()?;
        if *first > b' ' {
            return Some((*first, Rest(rest)));
        }
        match rest {
            [second, rest @ ..] if *first == b' ' && *second > b' ' => Some((*second, Rest(rest))),
            _ => self.behind_space(),
        }
    }

    /// The same where some may stand. Most writers put none, and what follows is faster where it is apart.
    #[cold]
    #[inline(never)]
    fn behind_space(self) -> Option<(u8, Self)> {
        let at = self.0.iter().position(|byte| !matches!(byte, b' ' | b'\n' | b'\r' | b'\t'))?;
        Some((self.0[at], Rest(&self.0[at + 1..])))
    }

    #[inline(always)]
    fn expect(self, byte: u8) -> Option<Self> {
        self.next().filter(|(found, _)| *found == byte).map(|(_, rest)| rest)
    }

    #[inline(always)]
    fn word(self, word: &[u8]) -> Option<Self> {
        self.0.strip_prefix(word).map(Rest)
    }

    /// What is in a string whose first quote was read; None if there is an escape in it, or what is no UTF-8.
    #[inline(always)]
    fn string(self) -> Option<(&'de [u8], Self)> {
        let (text, mut at, mut met) = (self.0, 0, 0);
        loop {
            let word = first_word(&text[at..]);
            let special = special(word);
            met |= word;
            if special != 0 {
                // The lowest one is one: only above it may bits be borrowed.
                at += special.trailing_zeros() as usize / 8;
                return self.ends(at, met & HIGHEST == 0);
            }
            at += 8;
        }
    }

    /// The string that the special byte here ends, if it is a quote.
    #[inline(always)]
    fn ends(self, at: usize, is_ascii: bool) -> Option<(&'de [u8], Self)> {
        let (inside, rest) = self.0.split_at(at);
        if !is_ascii && std::str::from_utf8(inside).is_err() {
            return None;
        }
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
        if text.get(at).is_some_and(u8::is_ascii_digit) {
            while let Some(eight) = text.get(at..).and_then(eight_digits) {
                number = number.wrapping_mul(100_000_000).wrapping_add(eight);
                at += 8;
            }
            while let Some(digit) = text.get(at).filter(|byte| byte.is_ascii_digit()) {
                number = number.wrapping_mul(10).wrapping_add(i64::from(digit & 15));
                at += 1;
            }
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
        // Whether a list was opened right before, which may end without a value.
        let mut begun = false;
        loop {
            let (first, behind) = rest.next()?;
            rest = match first {
                b'"' => behind.string()?.1,
                b't' => behind.word(b"rue")?,
                b'f' => behind.word(b"alse")?,
                b'n' => behind.word(b"ull")?,
                b'[' | b'{' if open == depth => return None,
                b'[' => {
                    (open, objects, rest, begun) = (open + 1, objects << 1, behind, true);
                    continue;
                }
                b']' if begun => {
                    (open, objects) = (open - 1, objects >> 1);
                    behind
                }
                b'{' => match behind.next()? {
                    (b'}', behind) => behind,
                    (b'"', behind) => {
                        (open, objects, rest, begun) = (open + 1, objects << 1 | 1, behind.key()?, false);
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
            begun = false;
        }
    }

    /// What is behind a key whose first quote was read, and the colon after it.
    #[inline(always)]
    fn key(self) -> Option<Self> {
        self.string()?.1.expect(b':')
    }

    /// Which of the wanted keys stands here, whose first quote was read, and what is behind its colon.
    #[inline(always)]
    fn wanted(self, wanted: &[Member]) -> Option<(Option<usize>, Self)> {
        if let Some(word) = self.0.first_chunk() {
            let word = u64::from_le_bytes(*word);
            for (at, one) in wanted.iter().enumerate() {
                if let Some(behind) = one.written.strip(self.0, word) {
                    return Some((Some(at), behind));
                }
            }
            if let Some(behind) = self.string()?.1.word(b":") {
                return Some((None, behind));
            }
        }
        let (key, behind) = self.string()?;
        Some((wanted.iter().position(|one| one.key.as_bytes() == key), behind.expect(b':')?))
    }

    fn object(self, wanted: &[Member], found: &mut [Found<'de>], depth: u32) -> Option<Self> {
        let (mut seen, mut rest) = (
            0u64,
            match self.expect(b'{')?.next()? {
                (b'}', behind) => return Some(behind),
                (b'"', behind) => behind,
                _ => return None,
            },
        );
        loop {
            let (key, behind) = rest.wanted(wanted)?;
            let behind = match key {
                None => behind.skip(depth)?,
                Some(at) => {
                    if seen & (1 << at) != 0 {
                        return None;
                    }
                    seen |= 1 << at;
                    match &wanted[at].place {
                        Place::Field(number, kind) => {
                            let (field, behind) = behind.field(*kind)?;
                            found[*number] = field;
                            behind
                        }
                        Place::Object(inner) => behind.object(inner, found, depth.checked_sub(1)?)?,
                    }
                }
            };
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

/// The first eight bytes of a text, zeros where it is shorter.
#[inline(always)]
fn first_word(text: &[u8]) -> u64 {
    text.first_chunk().map_or_else(|| last_word(text), |word| u64::from_le_bytes(*word))
}

#[cold]
#[inline(never)]
fn last_word(text: &[u8]) -> u64 {
    text.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// The number that the first eight bytes write, if all of them are digits.
#[inline(always)]
fn eight_digits(text: &[u8]) -> Option<i64> {
    let word = u64::from_le_bytes(*text.first_chunk()?);
    let digits = word ^ (ONES * b'0' as u64);
    // Of a digit, no bit above the fourth one is set, and six more set none.
    if (digits | digits.wrapping_add(ONES * 6)) & (ONES * 0xf0) != 0 {
        return None;
    }
    let pairs = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some(((fours * 10_000 + (fours >> 32)) & 0xffff_ffff) as i64)
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

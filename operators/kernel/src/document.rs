//! One JSON document: whether it is one, and what it holds at a few pointers.
//!
//! A plain document is scanned (`scan`). Of every other one the parser of serde_json checks every byte; what
//! this file adds can only make it more careful: a document is read if its parser takes it, and if nothing in
//! it is such that another parser could read it differently (a wanted key twice, a number near the limits of
//! a double, deep nesting). What breaks the grammar of JSON is no JSON for any parser. Everything else is
//! `Unsure`, which costs time and never a wrong verdict.

use std::borrow::Cow;
use std::fmt;

use crate::scan::{self, Written};
use crate::times::Unit;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Levels of nesting that are walked into.
pub const DEEPEST: u32 = 100;
/// Numbers beyond this are left to the rule: where a double ends, parsers may differ.
const LARGEST: f64 = 1e300;
/// Keys wanted of one object; one bit each tells which were there.
pub const MOST_KEYS: usize = 64;

/// What a field has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Integer,
    /// A text, or an integer, which is the same as its digits.
    Either,
    /// A text, or an integer of this unit.
    Time(Unit),
}

/// Where the wanted fields are.
#[derive(Debug)]
pub enum Place {
    Field(usize, Kind),
    Object(Vec<Member>),
}

/// A wanted key of an object, and where the fields are in its value.
#[derive(Debug)]
pub struct Member {
    pub key: Box<str>,
    pub written: Written,
    pub place: Place,
}

/// What was found at one field.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'de> {
    Nothing,
    /// In UTF-8.
    Text(Cow<'de, [u8]>),
    Integer(i64),
}

/// What is known of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is JSON, and its fields were read.
    Read,
    /// No parser takes it for JSON.
    NoJson,
    Unsure,
}

impl Place {
    pub fn root() -> Self {
        Place::Object(Vec::new())
    }

    /// Add field number `number` at these tokens; false if no object can hold all fields.
    pub fn add(&mut self, tokens: &[String], number: usize, kind: Kind) -> bool {
        let (Place::Object(members), Some((first, rest))) = (self, tokens.split_first()) else {
            return false;
        };
        let at = match members.iter().position(|one| *one.key == **first) {
            Some(at) => at,
            None if members.len() == MOST_KEYS => return false,
            None => {
                let inner = if rest.is_empty() { Place::Field(number, kind) } else { Place::root() };
                members.push(Member {
                    key: first.as_str().into(),
                    written: Written::of(first),
                    place: inner,
                });
                if rest.is_empty() {
                    return true;
                }
                members.len() - 1
            }
        };
        members[at].place.add(rest, number, kind)
    }

    /// The fields of a document into `found`, one place for each; they are there if the verdict is `Read`.
    pub fn read<'de>(&self, value: &'de [u8], found: &mut [Found<'de>]) -> Verdict {
        found.iter_mut().for_each(|one| *one = Found::Nothing);
        if scan::read(self, value, found).is_some() {
            return Verdict::Read;
        }
        found.iter_mut().for_each(|one| *one = Found::Nothing);
        let Ok(text) = std::str::from_utf8(value) else { return Verdict::NoJson };
        let mut parser = serde_json::Deserializer::from_str(text);
        let walk = Walk { place: self, found, depth: DEEPEST };
        match walk.deserialize(&mut parser).and_then(|()| parser.end()) {
            Ok(()) if found.iter().all(|one| *one != Found::Nothing) => Verdict::Read,
            Ok(()) => Verdict::Unsure,
            Err(error) if halves_characters(&error) || breaks_grammar(text) => Verdict::NoJson,
            Err(_) => Verdict::Unsure,
        }
    }
}

/// Whether a parser met an escape that stands for half of a character, with no other half beside it, or one that
/// breaks the grammar.
fn halves_characters(error: &serde_json::Error) -> bool {
    error.is_syntax() && error.to_string().contains("hex escape")
}

/// Whether a text is no document by the grammar of JSON alone, whatever a parser's limits: how deep it goes, how
/// large numbers may be, which escapes of characters belong together.
fn breaks_grammar(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_err()
}

/// Reads what is at a place.
struct Walk<'p, 'f, 'de> {
    place: &'p Place,
    found: &'f mut [Found<'de>],
    depth: u32,
}

impl<'de> DeserializeSeed<'de> for Walk<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<(), D::Error> {
        match self.place {
            Place::Field(number, kind) => {
                parser.deserialize_any(Field { kind: *kind, found: &mut self.found[*number] })
            }
            Place::Object(_) => parser.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Walk<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<(), M::Error> {
        let Place::Object(wanted) = self.place else { return Err(M::Error::custom("unsure")) };
        let mut seen = 0u64;
        while let Some(key) = members.next_key_seed(Key(wanted))? {
            let Some(at) = key else {
                members.next_value_seed(Skip(self.depth))?;
                continue;
            };
            if seen & (1 << at) != 0 || self.depth == 0 {
                return Err(M::Error::custom("unsure"));
            }
            seen |= 1 << at;
            let (place, depth) = (&wanted[at].place, self.depth - 1);
            members.next_value_seed(Walk { place, found: &mut *self.found, depth })?;
        }
        Ok(())
    }
}

/// Which of the wanted keys a key is.
struct Key<'p>(&'p [Member]);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Self::Value, D::Error> {
        parser.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|wanted| *wanted.key == *key))
    }
}

/// Takes a field of the right kind.
struct Field<'f, 'de> {
    kind: Kind,
    found: &'f mut Found<'de>,
}

impl<'de> Field<'_, 'de> {
    fn take_text<E: Error>(self, text: Cow<'de, [u8]>) -> Result<(), E> {
        if self.kind == Kind::Integer {
            return Err(E::custom("unsure"));
        }
        *self.found = Found::Text(text);
        Ok(())
    }
}

impl<'de> Visitor<'de> for Field<'_, 'de> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str("a field of the right kind")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<(), E> {
        self.take_text(Cow::Borrowed(text.as_bytes()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.take_text(Cow::Owned(text.as_bytes().to_owned()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        if self.kind == Kind::Text {
            return Err(E::custom("unsure"));
        }
        *self.found = Found::Integer(number);
        Ok(())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.visit_i64(i64::try_from(number).map_err(|_| E::custom("unsure"))?)
    }
}

/// Checks a value that nobody asked for, down to `depth` levels.
struct Skip(u32);

impl Skip {
    fn deeper<E: Error>(&self) -> Result<u32, E> {
        self.0.checked_sub(1).ok_or_else(|| E::custom("unsure"))
    }
}

impl<'de> DeserializeSeed<'de> for Skip {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<(), D::Error> {
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Skip {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        if number.abs() < LARGEST {
            Ok(())
        } else {
            Err(E::custom("unsure"))
        }
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut elements: S) -> Result<(), S::Error> {
        let depth = self.deeper()?;
        while elements.next_element_seed(Skip(depth))?.is_some() {}
        Ok(())
    }

    fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<(), M::Error> {
        let depth = self.deeper()?;
        while members.next_key_seed(Key(&[]))?.is_some() {
            members.next_value_seed(Skip(depth))?;
        }
        Ok(())
    }
}

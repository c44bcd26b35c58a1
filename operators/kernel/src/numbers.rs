//! Numbers for values: each distinct one gets the next.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::hint::black_box;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::columns::{Block, Column, BLOCK};
use crate::guard::unlocked;
use crate::integers::Integers;

/// The most values with a number: one more, and the number of nobody, fit into 32 bits too.
const MOST: u32 = u32::MAX - 2;

/// A keyed hash, whose key nobody knows: a sender can choose no values that fall on the same places.
///
/// Of a short text aHash costs a fifth of the standard library's SipHash, which was most of what finding a
/// user costs. It is made to withstand chosen values too, though with less analysis behind it. Its failure
/// could cost only time, because all bytes of a text are compared. Its 256 bits of key are from the
/// standard library, whose own are from the system: built without features it would take fixed ones.
struct Secret(ahash::RandomState);

/// A key for such a hash; see `Secret`.
pub fn secret() -> ahash::RandomState {
    let chance = RandomState::new();
    let [a, b, c, d] = [0u8, 1, 2, 3].map(|one| chance.hash_one(one));
    ahash::RandomState::with_seeds(a, b, c, d)
}

impl Secret {
    fn new() -> Self {
        Secret(secret())
    }

    fn hash(&self, text: &[u8]) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write(text);
        hasher.finish()
    }
}

/// Values by their canonical bytes, all of which are compared: a hash may find, but never decide.
///
/// A table with linear probing, at most three quarters of it taken. Of a million values hardly one is in the
/// caches of the processor, so finding one costs what is read: a slot, and the value.
pub struct Table {
    values: Values,
    slots: Vec<Slot>,
    secret: Secret,
}

/// Where a value is found.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// The upper half of its hash: of values with another one nothing is read.
    tag: u32,
    /// Its place among the values, or 0 where none is.
    place: u32,
}

const FEWEST_SLOTS: usize = 16;

/// Byte strings one after the other, each behind its number and its length.
#[derive(Default)]
struct Values {
    data: Vec<u8>,
    count: u32,
}

/// Places count these many bytes, so that those of 16 GiB fit into 32 bits.
const UNIT: usize = 4;

impl Values {
    /// The place of the new one, from 1 on; None if no more fit.
    fn push(&mut self, value: &[u8]) -> Option<u32> {
        let place = u32::try_from(self.data.len() / UNIT + 1).ok()?;
        let length = u32::try_from(value.len()).ok()?;
        self.data.extend_from_slice(&self.count.to_le_bytes());
        self.data.extend_from_slice(&length.to_le_bytes());
        self.data.extend_from_slice(value);
        self.data.resize(self.data.len().next_multiple_of(UNIT), 0);
        self.count += 1;
        Some(place)
    }

    /// The number and the bytes of the one at a place.
    fn at(&self, place: u32) -> (u32, &[u8]) {
        let data = &self.data[UNIT * (place as usize - 1)..];
        let (number, data) = data.split_first_chunk().expect("a number is here");
        let (length, data) = data.split_first_chunk().expect("a length is here");
        (u32::from_le_bytes(*number), &data[..u32::from_le_bytes(*length) as usize])
    }

    /// Each with its place, in order.
    fn each(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let mut next = 1;
        (0..self.count).map(move |_| {
            let (place, (_, value)) = (next, self.at(next));
            next += 2 + value.len().div_ceil(UNIT) as u32;
            (place, value)
        })
    }
}

impl Table {
    pub fn new() -> Self {
        Table { values: Values::default(), slots: vec![Slot::default(); FEWEST_SLOTS], secret: Secret::new() }
    }

    pub fn len(&self) -> usize {
        self.values.count as usize
    }

    /// The slot with a value, or the free one where it belongs.
    fn slot(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> usize {
        let (last, tag) = (self.slots.len() - 1, (hash >> 32) as u32);
        let mut at = hash as usize & last;
        loop {
            let slot = self.slots[at];
            if slot.place == 0 || slot.tag == tag && is_it(slot.place) {
                return at;
            }
            at = (at + 1) & last;
        }
    }

    fn find(&self, text: &[u8], hash: u64) -> Option<u32> {
        let place = self.slots[self.slot(hash, |place| self.values.at(place).1 == text)].place;
        (place != 0).then(|| self.values.at(place).0)
    }

    /// The number of a text from 0 on, and whether it is new; None if no more fit.
    pub fn number(&mut self, text: &[u8]) -> Option<(u32, bool)> {
        self.number_of(text, self.secret.hash(text))
    }

    fn number_of(&mut self, text: &[u8], hash: u64) -> Option<(u32, bool)> {
        if let Some(found) = self.find(text, hash) {
            return Some((found, false));
        }
        let number = Some(self.values.count).filter(|next| *next < MOST)?;
        if 4 * (self.len() + 1) > 3 * self.slots.len() {
            self.resize(2 * self.slots.len());
        }
        let place = self.values.push(text)?;
        self.enter(hash, place);
        Some((number, true))
    }

    fn enter(&mut self, hash: u64, place: u32) {
        let free = self.slot(hash, |_| false);
        self.slots[free] = Slot { tag: (hash >> 32) as u32, place };
    }

    fn resize(&mut self, size: usize) {
        self.slots = vec![Slot::default(); size];
        let values = std::mem::take(&mut self.values);
        values.each().for_each(|(place, value)| self.enter(self.secret.hash(value), place));
        self.values = values;
    }

    /// A guess for each text of a block: its hash, and the place of the first value with its tag, or 0.
    ///
    /// Slots and values are read here for the whole block, so that the processor waits for all of them together
    /// and not for one after the other.
    fn guess(&self, block: &Block) -> [(u64, u32); BLOCK] {
        let mut guesses = [(0, 0); BLOCK];
        for (at, (hash, _)) in guesses.iter_mut().enumerate().take(block.len()) {
            *hash = self.secret.hash(block.get(at));
        }
        let last = self.slots.len() - 1;
        black_box(guesses.iter().fold(0, |read, (hash, _)| read ^ self.slots[*hash as usize & last].tag));
        for (hash, place) in &mut guesses {
            *place = self.slots[self.slot(*hash, |_| true)].place;
        }
        let first = |place: u32| self.values.data.get(UNIT * place as usize).copied().unwrap_or(0);
        black_box(guesses.iter().fold(0, |read, (_, place)| read ^ first(*place)));
        guesses
    }

    /// The number of a text, if the guess that it is at a place is right.
    fn guessed(&self, place: u32, text: &[u8]) -> Option<u32> {
        let (number, value) = (place != 0).then(|| self.values.at(place))?;
        (value == text).then_some(number)
    }

    /// The number of each value as `number` has it, in order.
    pub fn number_each(&mut self, column: &Column, mut take: impl FnMut(&[u8], Option<(u32, bool)>)) {
        column.blocks(|block| {
            let guesses = self.guess(block);
            for (at, (hash, place)) in (0..block.len()).zip(guesses) {
                let text = block.get(at);
                match self.guessed(place, text) {
                    Some(number) => take(text, Some((number, false))),
                    None => take(text, self.number_of(text, hash)),
                }
            }
        });
    }

    /// The number of each value, or None, in order.
    fn find_each(&self, column: &Column, mut take: impl FnMut(Option<u32>)) {
        column.blocks(|block| {
            let guesses = self.guess(block);
            for (at, (hash, place)) in (0..block.len()).zip(guesses) {
                let text = block.get(at);
                take(self.guessed(place, text).or_else(|| self.find(text, hash)));
            }
        });
    }

    /// Raises ValueError if these are not flags for all.
    pub fn check(&self, flags: &[u8]) -> PyResult<()> {
        match flags.len() == self.len() {
            true => Ok(()),
            false => Err(PyValueError::new_err(format!("{} flags for {}", flags.len(), self.len()))),
        }
    }

    /// Forget all but those with a flag; they are numbered anew, in the same order.
    pub fn keep(&mut self, flags: &[u8]) {
        let before = std::mem::take(&mut self.values);
        self.slots = vec![Slot::default(); FEWEST_SLOTS];
        for ((_, value), _) in before.each().zip(flags).filter(|(_, flag)| **flag != 0) {
            self.number(value);
        }
    }
}

/// Numbers from the first one on.
#[pyclass(module = "eventveil_kernel")]
pub struct Numbers {
    first: i64,
    table: Table,
}

#[pymethods]
impl Numbers {
    #[new]
    fn new(first: i64) -> Self {
        Numbers { first, table: Table::new() }
    }

    fn __len__(&self) -> usize {
        self.table.len()
    }

    /// int64 of the number of each value, and of the places of the new ones, whose numbers are the next ones.
    fn of<'py>(
        &mut self,
        py: Python<'py>,
        values: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let number = |this: &mut Self, column: &Column| {
            let (mut found, mut new, mut full) = (Vec::<i64>::new(), Vec::<i64>::new(), false);
            this.table.number_each(column, |_, numbered| match numbered {
                Some((number, is_new)) => {
                    if is_new {
                        new.push(found.len() as i64);
                    }
                    found.push(this.first + i64::from(number));
                }
                None => full = true,
            });
            (!full).then_some((found, new))
        };
        let done = with_column(values, |column| unlocked(py, || number(self, column)))??;
        let (found, new) = done.ok_or_else(|| PyOverflowError::new_err("too many values"))?;
        Ok((PyBytes::new(py, bytemuck::cast_slice(&found)), PyBytes::new(py, bytemuck::cast_slice(&new))))
    }

    /// What the number of each value stands for in `meanings`, whose last one is that of values without a number.
    ///
    /// Raises ValueError if these are not one more than there are numbers.
    fn translate(&self, py: Python, values: &Bound<PyAny>, meanings: PyBuffer<i64>) -> PyResult<Integers> {
        let meanings = meanings.to_vec(py)?;
        let Some((none, of_numbers)) =
            meanings.split_last().filter(|(_, of_numbers)| of_numbers.len() == self.table.len())
        else {
            return Err(PyValueError::new_err(format!(
                "{} meanings of {}",
                meanings.len(),
                self.table.len()
            )));
        };
        let translate = |column: &Column| {
            let mut found = Vec::with_capacity(column.len());
            self.table.find_each(column, |number| {
                found.push(number.map_or(*none, |at| of_numbers[at as usize]));
            });
            Integers(found)
        };
        with_column(values, |column| unlocked(py, || translate(column)))?
    }

    /// Forget all but those with a flag, a byte for each; they are numbered anew, in the same order.
    fn keep(&mut self, py: Python, flags: &[u8]) -> PyResult<()> {
        self.table.check(flags)?;
        unlocked(py, || self.table.keep(flags))
    }
}

/// What is to be done with a column, or with a list of texts and integers.
pub fn with_column<T>(values: &Bound<PyAny>, done: impl FnOnce(&Column) -> T) -> PyResult<T> {
    match values.downcast::<Column>() {
        Ok(column) => Ok(done(column.get())),
        Err(_) => Ok(done(&Column::of_list(values.downcast::<PyList>()?)?)),
    }
}

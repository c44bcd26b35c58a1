//! Numbers for values: each distinct one gets the next.

use std::hash::{BuildHasher, Hasher, RandomState};

use hashbrown::hash_table::Entry;
use hashbrown::HashTable;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::columns::{Column, Texts};
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
pub struct Table {
    known: Texts,
    table: HashTable<u32>,
    secret: Secret,
}

impl Table {
    pub fn new() -> Self {
        Table { known: Texts::default(), table: HashTable::new(), secret: Secret::new() }
    }

    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// The number of a text from 0 on, and whether it is new; None if there are no more numbers.
    pub fn number(&mut self, text: &[u8]) -> Option<(u32, bool)> {
        let (known, secret) = (&mut self.known, &self.secret);
        let entry = self.table.entry(
            secret.hash(text),
            |at| known.get(*at as usize) == text,
            |at| secret.hash(known.get(*at as usize)),
        );
        match entry {
            Entry::Occupied(found) => Some((*found.get(), false)),
            Entry::Vacant(free) => {
                let next = u32::try_from(known.len()).ok().filter(|next| *next < MOST)?;
                free.insert(next);
                known.push(text);
                Some((next, true))
            }
        }
    }

    fn find(&self, text: &[u8]) -> Option<u32> {
        let found = self.table.find(self.secret.hash(text), |at| self.known.get(*at as usize) == text);
        found.copied()
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
        let before = std::mem::take(&mut self.known);
        self.table = HashTable::new();
        for (at, _) in flags.iter().enumerate().filter(|(_, flag)| **flag != 0) {
            self.number(before.get(at));
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
            column.each(|text| match this.table.number(text) {
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
        let (found, new) = done.ok_or_else(|| PyOverflowError::new_err("four billion values"))?;
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
            column.each(|text| {
                found.push(self.table.find(text).map_or(*none, |at| of_numbers[at as usize]));
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

//! Numbers for values: each distinct one gets the next.

use std::hash::{BuildHasher, RandomState};

use hashbrown::hash_table::Entry;
use hashbrown::HashTable;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::columns::{Column, Texts};
use crate::guard::unlocked;

/// Values by their canonical bytes, all of which are compared: a hash may find, but never decide.
///
/// The hash is keyed with a secret, so that nobody can choose values that fall on the same places.
#[pyclass(module = "eventveil_kernel")]
pub struct Numbers {
    first: i64,
    known: Texts,
    table: HashTable<u32>,
    secret: RandomState,
}

impl Numbers {
    fn hash(secret: &RandomState, text: &[u8]) -> u64 {
        secret.hash_one(text)
    }

    fn number(&mut self, text: &[u8]) -> Option<(u32, bool)> {
        let (known, secret) = (&mut self.known, &self.secret);
        let hash = Self::hash(secret, text);
        let entry = self.table.entry(
            hash,
            |at| known.get(*at as usize) == text,
            |at| Self::hash(secret, known.get(*at as usize)),
        );
        match entry {
            Entry::Occupied(found) => Some((*found.get(), false)),
            Entry::Vacant(free) => {
                let next = u32::try_from(known.len()).ok().filter(|next| *next < u32::MAX)?;
                free.insert(next);
                known.push(text);
                Some((next, true))
            }
        }
    }

    fn find_one(&self, text: &[u8]) -> i64 {
        let found =
            self.table.find(Self::hash(&self.secret, text), |at| self.known.get(*at as usize) == text);
        found.map_or(-1, |at| self.first + i64::from(*at))
    }
}

#[pymethods]
impl Numbers {
    #[new]
    fn new(first: i64) -> Self {
        Numbers { first, known: Texts::default(), table: HashTable::new(), secret: RandomState::new() }
    }

    fn __len__(&self) -> usize {
        self.known.len()
    }

    /// int64 of the number of each value, and of the places of the new ones, whose numbers are the next ones.
    fn of<'py>(
        &mut self,
        py: Python<'py>,
        values: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let number = |this: &mut Self, column: &Column| {
            let (mut found, mut new, mut full) = (Vec::<i64>::new(), Vec::<i64>::new(), false);
            column.each(|text| match this.number(text) {
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

    /// int64 of the number of each value, or -1 if it has none.
    fn find<'py>(&self, py: Python<'py>, values: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let find = |column: &Column| {
            let mut found = Vec::<i64>::new();
            column.each(|text| found.push(self.find_one(text)));
            found
        };
        let found = with_column(values, |column| unlocked(py, || find(column)))??;
        Ok(PyBytes::new(py, bytemuck::cast_slice(&found)))
    }

    /// Forget all but those with a flag, a byte for each; they are numbered anew, in the same order.
    fn keep(&mut self, py: Python, flags: &[u8]) -> PyResult<()> {
        if flags.len() != self.known.len() {
            return Err(PyValueError::new_err(format!("{} flags for {}", flags.len(), self.known.len())));
        }
        unlocked(py, || {
            let before = std::mem::take(&mut self.known);
            self.table = HashTable::new();
            for (at, _) in flags.iter().enumerate().filter(|(_, flag)| **flag != 0) {
                self.number(before.get(at));
            }
        })
    }
}

/// What is to be done with a column, or with a list of texts and integers.
fn with_column<T>(values: &Bound<PyAny>, done: impl FnOnce(&Column) -> T) -> PyResult<T> {
    match values.downcast::<Column>() {
        Ok(column) => Ok(done(column.get())),
        Err(_) => Ok(done(&Column::of_list(values.downcast::<PyList>()?)?)),
    }
}

//! The users that a source partition has met: their numbers, who of them belongs to it, and who came lately.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::columns::Column;
use crate::guard::unlocked;
use crate::integers::Integers;
use crate::numbers::{with_column, Table};
use crate::partitions::Partitioner;

/// Numbers from 1 on; 0 is that of what is no user.
#[pyclass(module = "eventveil_kernel")]
pub struct Users {
    known: Table,
    /// By number; that of nobody is false.
    belongs: Vec<bool>,
    met: Vec<bool>,
    partitioner: Partitioner,
    partitions: u32,
    partition: u32,
}

impl Users {
    /// Whether it is the number of a user, and of this partition; None if nobody has it.
    pub fn belongs(&self, number: i64) -> Option<bool> {
        self.belongs.get(usize::try_from(number).ok()?).copied()
    }
}

#[pymethods]
impl Users {
    #[new]
    fn new(partitioner: &str, partitions: u32, partition: u32) -> PyResult<Self> {
        let partitioner = Partitioner::named(partitioner)
            .filter(|_| partitions > 0)
            .ok_or_else(|| PyValueError::new_err("no such partitioner, or no partition"))?;
        let (belongs, met) = (vec![false], vec![false]);
        Ok(Users { known: Table::new(), belongs, met, partitioner, partitions, partition })
    }

    fn __len__(&self) -> usize {
        self.known.len()
    }

    /// The number of each value of a column, or of a list of texts and integers; they are met.
    fn of(&mut self, py: Python, values: &Bound<PyAny>) -> PyResult<Integers> {
        let number = |this: &mut Self, column: &Column| {
            let Users { known, belongs, met, partitioner, partitions, partition } = this;
            let (mut found, mut full) = (Vec::with_capacity(column.len()), false);
            known.number_each(column, |text, numbered| {
                let Some((number, new)) = numbered else {
                    full = true;
                    return;
                };
                let number = number as usize + 1;
                if new {
                    let here = || partitioner.partition(text, *partitions) == *partition;
                    belongs.push(!text.is_empty() && here());
                    met.push(true);
                }
                met[number] = true;
                found.push(number as i64);
            });
            (!full).then_some(Integers(found))
        };
        let found = with_column(values, |column| unlocked(py, || number(self, column)))??;
        found.ok_or_else(|| PyOverflowError::new_err("too many users"))
    }

    /// A byte for each number: 1 if it is that of a user, and of this partition.
    fn belong<'py>(&self, py: Python<'py>, numbers: PyBuffer<i64>) -> PyResult<Bound<'py, PyBytes>> {
        let flags: Option<Vec<u8>> =
            numbers.to_vec(py)?.into_iter().map(|number| self.belongs(number).map(u8::from)).collect();
        let flags = flags.ok_or_else(|| PyIndexError::new_err("nobody has this number"))?;
        Ok(PyBytes::new(py, &flags))
    }

    /// A byte for each number from 0 on: 1 if it was met since the last call.
    fn take_met<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let flags: Vec<u8> = self.met.iter().copied().map(u8::from).collect();
        self.met.fill(false);
        PyBytes::new(py, &flags)
    }

    /// Forget all but those with a flag, a byte for each from 1 on; they are numbered anew, in the same order.
    fn keep(&mut self, py: Python, flags: &[u8]) -> PyResult<()> {
        self.known.check(flags)?;
        unlocked(py, || {
            let kept = flags.iter().zip(&self.belongs[1..]).filter(|(flag, _)| **flag != 0);
            self.belongs = std::iter::once(false).chain(kept.map(|(_, belongs)| *belongs)).collect();
            self.known.keep(flags);
            self.met = vec![false; self.belongs.len()];
        })
    }
}

//! The contribution bound: of each user, the first events of a timestamp count, up to the bound.

use std::collections::hash_map::{Entry, HashMap};
use std::hash::{BuildHasher, RandomState};

use pyo3::buffer::{PyBuffer, ReadOnlyCell};
use pyo3::exceptions::{PyBufferError, PyIndexError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::guard::unlocked;
use crate::numbers::secret;

const SMALLEST_BITS: u32 = 4;

/// How often the user in the same place of the table has contributed; once, if the bound is 1.
enum Counted {
    Once,
    Bytes(Vec<u8>),
    Shorts(Vec<u16>),
    Words(Vec<u64>),
}

impl Counted {
    fn new(bound: u64, size: usize) -> Self {
        match bound {
            0 | 1 => Counted::Once,
            2..=0xff => Counted::Bytes(vec![0; size]),
            0x100..=0xffff => Counted::Shorts(vec![0; size]),
            _ => Counted::Words(vec![0; size]),
        }
    }

    fn get(&self, place: usize) -> u64 {
        match self {
            Counted::Once => 1,
            Counted::Bytes(counted) => counted[place].into(),
            Counted::Shorts(counted) => counted[place].into(),
            Counted::Words(counted) => counted[place],
        }
    }

    /// `number` is at most the bound that this was made for.
    fn set(&mut self, place: usize, number: u64) {
        match self {
            Counted::Once => {}
            Counted::Bytes(counted) => counted[place] = number as u8,
            Counted::Shorts(counted) => counted[place] = number as u16,
            Counted::Words(counted) => counted[place] = number,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Counted::Once => 0,
            Counted::Bytes(counted) => counted.len(),
            Counted::Shorts(counted) => 2 * counted.len(),
            Counted::Words(counted) => 8 * counted.len(),
        }
    }
}

/// Who has contributed to one timestamp so far, by number, and how often.
///
/// A table with linear probing, a third to two thirds of it taken. The place where a number is looked for is
/// found with secrets, so that nobody can choose users that fall together; the number in it decides.
#[pyclass(module = "eventveil_kernel")]
pub struct Contributions {
    bound: u64,
    users: usize,
    bits: u32,
    /// A number plus one, or 0 where nobody is.
    table: Vec<u32>,
    counted: Counted,
    secrets: [u64; 3],
}

impl Contributions {
    fn clear(&mut self, bits: u32) {
        self.users = 0;
        self.bits = bits;
        self.table = vec![0; 1 << bits];
        self.counted = Counted::new(self.bound, 1 << bits);
    }

    /// Where the key is, or where it belongs.
    fn place(&self, key: u32) -> usize {
        let [first, shift, second] = self.secrets;
        let once = u64::from(key).wrapping_mul(first).wrapping_add(shift);
        let mut place = ((once ^ once >> 32).wrapping_mul(second) >> (64 - self.bits)) as usize;
        while self.table[place] != 0 && self.table[place] != key {
            place = (place + 1) & (self.table.len() - 1);
        }
        place
    }

    fn enter(&mut self, key: u32, place: usize, number: u64) {
        self.table[place] = key;
        self.counted.set(place, number);
        self.users += 1;
    }

    pub fn of(bound: u64) -> Self {
        let chance = RandomState::new();
        let secrets = [chance.hash_one(0u8) | 1, chance.hash_one(1u8), chance.hash_one(2u8) | 1];
        let mut made =
            Contributions { bound, users: 0, bits: 0, table: Vec::new(), counted: Counted::Once, secrets };
        made.clear(SMALLEST_BITS);
        made
    }

    pub fn len(&self) -> usize {
        self.users
    }

    /// The numbers of all users.
    pub fn numbers(&self) -> Vec<i64> {
        self.table.iter().filter(|key| **key != 0).map(|key| i64::from(*key) - 1).collect()
    }

    /// See `renumber`.
    ///
    /// Only the numbers of these users are read: each of many timestamps has few of all users.
    pub fn renumber_all(&mut self, py: Python, new_numbers: &Bound<PyAny>) -> PyResult<()> {
        let buffer = PyBuffer::<i64>::get(new_numbers)?;
        let numbers = slice_of(py, &buffer)?;
        let renumbered = |key: &u32| match key {
            0 => Some(0),
            key => renumbered(numbers, *key),
        };
        let keys = self.table.iter().map(renumbered).collect::<Option<Vec<u32>>>();
        let keys = keys.ok_or_else(|| PyIndexError::new_err("a user has no new number"))?;
        unlocked(py, || self.rebuild(self.bits, keys))
    }

    /// Whether one more event of the user with this key counts; it is counted.
    pub fn admit_one(&mut self, key: u32) -> bool {
        let mut place = self.place(key);
        if self.table[place] != 0 {
            let before = self.counted.get(place);
            if before < self.bound {
                self.counted.set(place, before + 1);
            }
            return before < self.bound;
        }
        if 3 * (self.users + 1) > 2 << self.bits {
            let keys = std::mem::take(&mut self.table);
            self.rebuild(self.bits + 1, keys);
            place = self.place(key);
        }
        self.enter(key, place, 1);
        true
    }

    /// Move everybody to a table of this size; `keys` are theirs from now on, by place.
    fn rebuild(&mut self, bits: u32, keys: Vec<u32>) {
        let counted = std::mem::replace(&mut self.counted, Counted::Once);
        self.clear(bits);
        for (place, key) in keys.into_iter().enumerate().filter(|(_, key)| *key != 0) {
            let found = self.place(key);
            self.enter(key, found, counted.get(place));
        }
    }
}

#[pymethods]
impl Contributions {
    #[new]
    fn new(bound: u64) -> Self {
        Contributions::of(bound)
    }

    fn __len__(&self) -> usize {
        self.len()
    }

    /// The bytes of the table.
    fn bytes(&self) -> usize {
        4 * self.table.len() + self.counted.bytes()
    }

    /// A byte for each event, in the order in which they come: 1 if it counts. They are counted.
    fn admit<'py>(&mut self, py: Python<'py>, users: PyBuffer<i64>) -> PyResult<Bound<'py, PyBytes>> {
        let users = users.to_vec(py)?;
        let admitted = unlocked(py, || {
            let keys = users.iter().map(|user| key_of(*user)).collect::<Option<Vec<u32>>>()?;
            Some(keys.into_iter().map(|key| u8::from(self.admit_one(key))).collect::<Vec<u8>>())
        })?;
        let admitted = admitted.ok_or_else(|| PyOverflowError::new_err("this is the number of no user"))?;
        Ok(PyBytes::new(py, &admitted))
    }

    /// int64 of the numbers of all users.
    fn users<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, bytemuck::cast_slice(&self.numbers()))
    }

    /// Let every user have its new number, found at its old one; distinct ones stay distinct.
    fn renumber(&mut self, py: Python, new_numbers: &Bound<PyAny>) -> PyResult<()> {
        self.renumber_all(py, new_numbers)
    }
}

/// How many events of each user count in each column, at most `most`: one at least of each pair that is held.
pub struct InColumns {
    most: u32,
    /// By key of the user and column. Hashed with secrets, because clients choose both.
    counted: HashMap<(u32, u32), u32, ahash::RandomState>,
}

impl InColumns {
    pub fn of(most: u32) -> Self {
        InColumns { most, counted: HashMap::with_hasher(secret()) }
    }

    /// Whether one more event of the user with this key counts in this column, and `in_all`; it is counted.
    pub fn admit_one(&mut self, key: u32, column: u32, in_all: &mut Contributions) -> bool {
        match self.counted.entry((key, column)) {
            // Such a user has counted in this column, and is among the users already.
            Entry::Occupied(full) if *full.get() >= self.most => false,
            Entry::Occupied(mut some) => {
                let admitted = in_all.admit_one(key);
                *some.get_mut() += u32::from(admitted);
                admitted
            }
            Entry::Vacant(none) => {
                let admitted = in_all.admit_one(key);
                if admitted {
                    none.insert(1);
                }
                admitted
            }
        }
    }

    /// The same with new numbers of users; see `Contributions.renumber`.
    pub fn renumbered(&self, py: Python, new_numbers: &Bound<PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::<i64>::get(new_numbers)?;
        let numbers = slice_of(py, &buffer)?;
        let one = |((key, column), counted): (&(u32, u32), &u32)| {
            renumbered(numbers, *key).map(|key| ((key, *column), *counted))
        };
        let pairs = self.counted.iter().map(one).collect::<Option<Vec<_>>>();
        let pairs = pairs.ok_or_else(|| PyIndexError::new_err("a user has no new number"))?;
        let mut renumbered = InColumns::of(self.most);
        unlocked(py, || renumbered.counted.extend(pairs))?;
        Ok(renumbered)
    }
}

fn slice_of<'a>(py: Python<'a>, buffer: &'a PyBuffer<i64>) -> PyResult<&'a [ReadOnlyCell<i64>]> {
    buffer.as_slice(py).ok_or_else(|| PyBufferError::new_err("these are not contiguous"))
}

/// The key of the user who had this one, by new numbers at the old ones.
fn renumbered(numbers: &[ReadOnlyCell<i64>], key: u32) -> Option<u32> {
    numbers.get(key as usize - 1).and_then(|number| key_of(number.get()))
}

/// The number of a user plus one.
pub fn key_of(user: i64) -> Option<u32> {
    u32::try_from(user).ok()?.checked_add(1)
}

//! One field of many events.

use std::borrow::Cow;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use crate::document::{Found, Kind};
use crate::numbers::Table;
use crate::times::{self, Unit};

/// Time of an event that the rule must judge. Times are smaller than `TIME_LIMIT`.
pub const UNSURE_TIME: i64 = i64::MIN;
const TIME_LIMIT: i64 = 1 << 53;

/// Byte strings one after the other.
#[derive(Default)]
pub struct Texts {
    data: Vec<u8>,
    ends: Vec<usize>,
}

impl Texts {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn push(&mut self, text: &[u8]) {
        self.data.extend_from_slice(text);
        self.ends.push(self.data.len());
    }

    pub fn get(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.data[start..self.ends[at]]
    }
}

/// The most texts in a `Block`.
pub const BLOCK: usize = 64;

/// Texts that stand together among others.
pub struct Block<'a> {
    texts: &'a Texts,
    first: usize,
    size: usize,
}

impl Block<'_> {
    pub fn len(&self) -> usize {
        self.size
    }

    pub fn get(&self, at: usize) -> &[u8] {
        self.texts.get(self.first + at)
    }
}

/// What could be no time, or none that is read here.
enum Odd {
    /// The next one of the texts of these.
    Text(usize),
    Number(i64),
}

/// By their places among times, ascending, those that are odd.
#[derive(Default)]
struct Odds {
    all: Vec<(usize, Odd)>,
    texts: Texts,
}

impl Odds {
    fn push_text(&mut self, place: usize, text: &[u8]) {
        self.all.push((place, Odd::Text(self.texts.len())));
        self.texts.push(text);
    }

    /// What is at a place, if it is odd.
    fn at(&self, place: usize) -> Option<One<'_>> {
        let found = self.all.binary_search_by_key(&place, |(one, _)| *one).ok()?;
        Some(match self.all[found].1 {
            Odd::Text(text) => One::Text(self.texts.get(text)),
            Odd::Number(number) => One::Number(number),
        })
    }
}

/// A value as Python has it.
enum One<'a> {
    Text(&'a [u8]),
    Number(i64),
}

/// The values of one field, in the order of their events.
#[pyclass(frozen, sequence, module = "eventveil_kernel")]
pub struct Column(Values);

enum Values {
    Texts(Texts),
    Integers(Vec<i64>),
    /// Epoch milliseconds, or `UNSURE_TIME`, and what those are; numbers were of this unit.
    Times(Vec<i64>, Odds, Unit),
}

impl Column {
    pub fn new(kind: Kind, room: usize) -> Self {
        Column(match kind {
            Kind::Text | Kind::Either => {
                Values::Texts(Texts { data: Vec::with_capacity(8 * room), ends: Vec::with_capacity(room) })
            }
            Kind::Integer => Values::Integers(Vec::with_capacity(room)),
            Kind::Time(unit) => Values::Times(Vec::with_capacity(room), Odds::default(), unit),
        })
    }

    pub fn push(&mut self, found: &Found) {
        match (&mut self.0, found) {
            (Values::Texts(texts), Found::Text(text)) => texts.push(text),
            (Values::Texts(texts), Found::Integer(number)) => {
                texts.push(itoa::Buffer::new().format(*number).as_bytes());
            }
            (Values::Integers(numbers), Found::Integer(number)) => numbers.push(*number),
            (Values::Times(times, odd, unit), Found::Integer(number)) => {
                let time = unit.milliseconds(*number).map_or(UNSURE_TIME, in_range);
                if time == UNSURE_TIME {
                    odd.all.push((times.len(), Odd::Number(*number)));
                }
                times.push(time);
            }
            (Values::Times(times, odd, _), Found::Text(text)) => {
                let time = times::parse(text).map_or(UNSURE_TIME, in_range);
                if time == UNSURE_TIME {
                    odd.push_text(times.len(), text);
                }
                times.push(time);
            }
            _ => unreachable!("a field of another kind was not taken"),
        }
    }

    pub fn len(&self) -> usize {
        match &self.0 {
            Values::Texts(texts) => texts.len(),
            Values::Integers(numbers) | Values::Times(numbers, ..) => numbers.len(),
        }
    }

    /// What a dictionary knows, in blocks: texts, and integers in decimal digits.
    pub fn blocks(&self, mut take: impl FnMut(&Block)) {
        match &self.0 {
            Values::Texts(texts) => {
                for first in (0..texts.len()).step_by(BLOCK) {
                    take(&Block { texts, first, size: BLOCK.min(texts.len() - first) });
                }
            }
            Values::Integers(numbers) | Values::Times(numbers, ..) => {
                let mut digits = itoa::Buffer::new();
                for some in numbers.chunks(BLOCK) {
                    let mut texts = Texts::default();
                    some.iter().for_each(|number| texts.push(digits.format(*number).as_bytes()));
                    take(&Block { texts: &texts, first: 0, size: some.len() });
                }
            }
        }
    }

    /// Texts and integers of Python.
    pub fn of_list(list: &Bound<PyList>) -> PyResult<Self> {
        let mut texts = Texts::default();
        for one in list {
            match one.downcast::<PyString>() {
                Ok(text) => texts.push(text.to_cow()?.as_bytes()),
                Err(_) => texts.push(one.str()?.to_cow()?.as_bytes()),
            }
        }
        Ok(Column(Values::Texts(texts)))
    }

    /// Integers, or times; raises TypeError of texts.
    pub fn as_integers(&self) -> PyResult<&[i64]> {
        match &self.0 {
            Values::Integers(numbers) | Values::Times(numbers, ..) => Ok(numbers),
            Values::Texts(_) => Err(PyTypeError::new_err("texts are no integers")),
        }
    }

    /// Epoch milliseconds, or `UNSURE_TIME`; raises TypeError of texts.
    pub fn as_times(&self) -> PyResult<Cow<'_, [i64]>> {
        match &self.0 {
            Values::Times(times, ..) => Ok(Cow::Borrowed(times)),
            _ => Ok(self.as_integers()?.iter().copied().map(in_range).collect()),
        }
    }

    fn value(&self, at: usize) -> One<'_> {
        match &self.0 {
            Values::Texts(texts) => One::Text(texts.get(at)),
            Values::Integers(numbers) => One::Number(numbers[at]),
            Values::Times(times, odd, _) => odd.at(at).unwrap_or(One::Number(times[at])),
        }
    }
}

impl One<'_> {
    fn python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            One::Text(text) => as_text(py, text),
            One::Number(number) => Ok(number.into_pyobject(py)?.into_any()),
        }
    }

    /// The bytes of this value and of no other, written to `to`.
    fn key<'a>(&self, to: &'a mut Vec<u8>) -> &'a [u8] {
        to.clear();
        match self {
            One::Text(text) => {
                to.push(b'"');
                to.extend_from_slice(text);
            }
            One::Number(number) => to.extend_from_slice(itoa::Buffer::new().format(*number).as_bytes()),
        }
        to
    }
}

fn in_range(time: i64) -> i64 {
    if -TIME_LIMIT < time && time < TIME_LIMIT {
        time
    } else {
        UNSURE_TIME
    }
}

fn as_text<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let text = std::str::from_utf8(text).map_err(|error| PyTypeError::new_err(error.to_string()))?;
    Ok(PyString::new(py, text).into_any())
}

/// Whether `repr` has this byte as it is, and the quotes around it are single.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'\'' && byte != b'\\'
}

/// int64 of the places of values among others, and those.
type Distinct<'py> = (Bound<'py, PyBytes>, Vec<Bound<'py, PyAny>>);

/// Places of a column, as numpy has them.
fn places(py: Python, at: &Bound<PyAny>, size: usize) -> PyResult<Vec<usize>> {
    let at = PyBuffer::<i64>::get(at)?.to_vec(py)?;
    at.into_iter()
        .map(|one| usize::try_from(one).ok().filter(|one| *one < size))
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| PyIndexError::new_err(format!("there are {size} values")))
}

#[pymethods]
impl Column {
    fn __len__(&self) -> usize {
        self.len()
    }

    /// The values at these places: str, or int. Of times that are sure, epoch milliseconds.
    fn at<'py>(&self, py: Python<'py>, at: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        places(py, at, self.len())?.into_iter().map(|one| self.value(one).python(py)).collect()
    }

    /// The distinct ones of these, in the order in which they come first, behind int64 of which of them each is.
    fn distinct<'py>(&self, py: Python<'py>, at: &Bound<'py, PyAny>) -> PyResult<Distinct<'py>> {
        let at = places(py, at, self.len())?;
        let (mut table, mut which) = (Table::new(), Vec::with_capacity(at.len()));
        let (mut values, mut key) = (Vec::new(), Vec::new());
        for one in at {
            let value = self.value(one);
            let found = table.number(value.key(&mut key));
            let (number, is_new) = found.ok_or_else(|| PyOverflowError::new_err("too many values"))?;
            if is_new {
                values.push(value.python(py)?);
            }
            which.push(i64::from(number));
        }
        Ok((PyBytes::new(py, bytemuck::cast_slice(&which)), values))
    }

    /// The values at these places in canonical bytes: UTF-8, or decimal digits.
    fn canonical<'py>(&self, py: Python<'py>, at: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let at = places(py, at, self.len())?;
        Ok(match &self.0 {
            Values::Texts(texts) => at.into_iter().map(|one| PyBytes::new(py, texts.get(one))).collect(),
            Values::Integers(numbers) | Values::Times(numbers, ..) => {
                let mut digits = itoa::Buffer::new();
                at.into_iter().map(|one| PyBytes::new(py, digits.format(numbers[one]).as_bytes())).collect()
            }
        })
    }

    /// The texts at these places in quotes, `end` behind each, as bytes, and int64 of their lengths. None if Python's
    /// `repr` would write one of them otherwise, if one has more than `most` bytes, or if they are no texts.
    fn quoted<'py>(
        &self,
        py: Python<'py>,
        at: &Bound<'py, PyAny>,
        end: &str,
        most: usize,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        let at = places(py, at, self.len())?;
        let Values::Texts(texts) = &self.0 else { return Ok(None) };
        let mut written = Vec::with_capacity(at.len() * (8 + end.len()));
        let mut lengths = Vec::<i64>::with_capacity(at.len());
        for one in at {
            let text = texts.get(one);
            if text.len() > most || !text.iter().all(|byte| is_plain(*byte)) {
                return Ok(None);
            }
            written.push(b'\'');
            written.extend_from_slice(text);
            written.push(b'\'');
            written.extend_from_slice(end.as_bytes());
            lengths.push((text.len() + 2 + end.len()) as i64);
        }
        Ok(Some((PyBytes::new(py, &written), PyBytes::new(py, bytemuck::cast_slice(&lengths)))))
    }

    /// int64 of all values that are integers or times; raises TypeError of texts.
    fn integers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, bytemuck::cast_slice(self.as_integers()?)))
    }

    /// A byte for each value: 0 of an empty text, 1 of any other value.
    fn filled<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let flags: Vec<u8> = match &self.0 {
            Values::Texts(texts) => (0..texts.len()).map(|at| u8::from(!texts.get(at).is_empty())).collect(),
            Values::Integers(numbers) | Values::Times(numbers, ..) => vec![1; numbers.len()],
        };
        PyBytes::new(py, &flags)
    }
}

//! The records of Kafka's record batches (format 2, KIP-98), uncompressed.
//!
//! A record is `length varint, attributes int8, time delta varint, offset delta varint, key length varint, key,
//! value length varint, value, header count varint, headers`; varints are zigzag-coded and a length of -1 is
//! null. Every length is checked against what it has to fit into. Whatever is unusual, damage included, gives
//! nothing at all: the caller then has the client library walk, and say what is wrong.

use std::borrow::Cow;
use std::ops::Range;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::guard::unlocked;

/// Parts of a text; a length of -1 is null.
#[derive(Default)]
pub struct Spans {
    starts: Vec<i64>,
    lengths: Vec<i64>,
}

impl Spans {
    /// One more, or null.
    pub fn push(&mut self, span: Option<Range<usize>>) {
        let (start, length) = span.map_or((0, -1), |span| (span.start as i64, span.len() as i64));
        self.starts.push(start);
        self.lengths.push(length);
    }

    /// int64 of starts and of lengths.
    pub fn answer<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
        (
            PyBytes::new(py, bytemuck::cast_slice(&self.starts)),
            PyBytes::new(py, bytemuck::cast_slice(&self.lengths)),
        )
    }
}

/// The headers of records, as places in their text.
#[pyclass(frozen, module = "eventveil_kernel")]
pub struct Headers {
    data: Py<PyBytes>,
    of_records: Vec<usize>,
    all: Vec<(Range<usize>, Option<Range<usize>>)>,
}

/// Headers of records as bytes.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    data: &'a [u8],
    headers: &'a Headers,
}

impl<'a> Parts<'a> {
    /// These numbers of records. Raises IndexError if one does not exist.
    pub fn records(self, numbers: &[i64]) -> PyResult<Vec<usize>> {
        let there = |number: &i64| {
            usize::try_from(*number).ok().filter(|record| *record < self.headers.of_records.len())
        };
        let found = numbers.iter().map(there).collect::<Option<Vec<_>>>();
        found.ok_or_else(|| PyIndexError::new_err("there is no such record"))
    }

    /// Where the names and values of the headers of a record are, which exists.
    pub fn places(self, record: usize) -> &'a [(Range<usize>, Option<Range<usize>>)] {
        let Headers { of_records, all, .. } = self.headers;
        let begin = if record == 0 { 0 } else { of_records[record - 1] };
        &all[begin..of_records[record]]
    }

    /// The bytes at a place.
    pub fn at(self, place: &Range<usize>) -> &'a [u8] {
        &self.data[place.clone()]
    }

    /// The name at a place, as every reader has it: brokers take any bytes, and Java's client replaces those
    /// that are not UTF-8.
    fn name(self, place: &Range<usize>) -> Cow<'a, str> {
        String::from_utf8_lossy(self.at(place))
    }

    /// Names and values of the headers of a record, which exists.
    pub fn headers(self, record: usize) -> impl Iterator<Item = (Cow<'a, str>, Option<&'a [u8]>)> {
        let texts = move |(name, value): &(Range<usize>, Option<Range<usize>>)| {
            (self.name(name), value.as_ref().map(|value| self.at(value)))
        };
        self.places(record).iter().map(texts)
    }
}

impl Headers {
    /// The same as bytes.
    pub fn parts<'a>(&'a self, py: Python<'a>) -> Parts<'a> {
        Parts { data: self.data.bind(py).as_bytes(), headers: self }
    }
}

/// A header: its name, and its value or None.
type Header<'py> = (Bound<'py, PyString>, Option<Bound<'py, PyBytes>>);

#[pymethods]
impl Headers {
    /// The text that all of it is in.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.data.bind(py).clone()
    }

    /// int64 of the bytes of names and values of each of these records, and `more` of them for each header.
    /// Raises IndexError if a record does not exist.
    fn sizes<'py>(
        &self,
        py: Python<'py>,
        records: PyBuffer<i64>,
        more: i64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let parts = self.parts(py);
        let size = |(name, value): &(Range<usize>, Option<Range<usize>>)| {
            (parts.name(name).len() + value.as_ref().map_or(0, |value| value.len())) as i64 + more
        };
        let records = parts.records(&records.to_vec(py)?)?;
        let sizes: Vec<i64> = records.iter().map(|one| parts.places(*one).iter().map(size).sum()).collect();
        Ok(PyBytes::new(py, bytemuck::cast_slice(&sizes)))
    }

    /// int64 of starts and lengths, in `data`, of the values of the last headers with this name of these records; a
    /// length of -1 is none. Raises IndexError if a record does not exist.
    fn last<'py>(
        &self,
        py: Python<'py>,
        records: PyBuffer<i64>,
        name: &str,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let (parts, mut spans) = (self.parts(py), Spans::default());
        for record in parts.records(&records.to_vec(py)?)? {
            let last = parts.places(record).iter().rev().find(|(place, _)| parts.name(place) == name);
            spans.push(last.and_then(|(_, value)| value.clone()));
        }
        Ok(spans.answer(py))
    }

    /// The headers of a record.
    fn of<'py>(&self, py: Python<'py>, record: i64) -> PyResult<Vec<Header<'py>>> {
        let parts = self.parts(py);
        let record = parts.records(&[record])?[0];
        let header = |(name, value): (Cow<str>, Option<&[u8]>)| {
            (PyString::new(py, &name), value.map(|value| PyBytes::new(py, value)))
        };
        Ok(parts.headers(record).map(header).collect())
    }
}

/// Bytes of a record without key, value and headers.
const SMALLEST: usize = 7;

/// What was found in batches.
struct Records {
    offsets: Vec<i64>,
    keys: Spans,
    values: Spans,
    of_records: Vec<usize>,
    headers: Vec<(Range<usize>, Option<Range<usize>>)>,
    /// From the first timestamp of the batch; none unless they are asked for.
    deltas: Option<Vec<i64>>,
}

/// Reads a text up to its end.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.text.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<i64> {
        let mut found = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            found |= bits << shift;
            if byte < 0x80 {
                return Some((found >> 1) as i64 ^ -((found & 1) as i64));
            }
        }
        None
    }

    /// A length and that number of bytes; nothing inside is null.
    fn span(&mut self) -> Option<Option<Range<usize>>> {
        let length = self.varint()?;
        if length == -1 {
            return Some(None);
        }
        let end = self.at.checked_add(usize::try_from(length).ok()?).filter(|end| *end <= self.text.len())?;
        let span = self.at..end;
        self.at = end;
        Some(Some(span))
    }
}

impl Records {
    /// Nothing yet, with room for this many.
    fn with_capacity(room: usize, deltas: bool) -> Self {
        let new = || Vec::with_capacity(room);
        let spans = || Spans { starts: new(), lengths: new() };
        Records {
            offsets: new(),
            keys: spans(),
            values: spans(),
            of_records: Vec::with_capacity(room),
            headers: Vec::new(),
            deltas: deltas.then(new),
        }
    }

    /// The records that fill a part of the text; nothing if they are unusual.
    fn walk(&mut self, text: &[u8], part: Range<usize>, number: i64, base_offset: i64) -> Option<()> {
        let mut cursor = Cursor { text: text.get(..part.end)?, at: part.start };
        for _ in 0..usize::try_from(number).ok()? {
            let length = usize::try_from(cursor.varint()?).ok()?;
            let stop = cursor.at.checked_add(length).filter(|stop| *stop <= part.end)?;
            if cursor.byte()? != 0 {
                return None;
            }
            let later = cursor.varint()?;
            let delta = cursor.varint().filter(|delta| (0..=i64::from(i32::MAX)).contains(delta))?;
            let offset = base_offset.checked_add(delta)?;
            if self.offsets.last().is_some_and(|last| *last >= offset) {
                return None;
            }
            let (key, value) = (cursor.span()?, cursor.span()?);
            for _ in 0..usize::try_from(cursor.varint()?).ok()? {
                let name = cursor.span()??;
                self.headers.push((name, cursor.span()?));
            }
            if cursor.at != stop {
                return None;
            }
            self.offsets.push(offset);
            self.keys.push(key);
            self.values.push(value);
            self.of_records.push(self.headers.len());
            if let Some(deltas) = &mut self.deltas {
                deltas.push(later);
            }
        }
        (cursor.at == part.end).then_some(())
    }
}

/// int64 of offsets, starts and lengths of keys, starts and lengths of values; and headers, if there are any,
/// and int64 of time deltas, if they are asked for.
type Answer<'py> = (
    Bound<'py, PyBytes>,
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>),
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>),
    Option<Headers>,
    Option<Bound<'py, PyBytes>>,
);

/// The records of batches that follow each other in `data`: bytes, records and base offset of each.
///
/// `deltas`: also how much later than the first timestamp of its batch each is, in milliseconds.
/// None if anything in them is unusual. Raises ValueError if the batches are not `data`.
#[pyfunction]
pub fn walk<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyBytes>,
    batches: Vec<(usize, i64, i64)>,
    deltas: bool,
) -> PyResult<Option<Answer<'py>>> {
    let text = data.as_bytes();
    let size = batches.iter().try_fold(0usize, |sum, (size, _, _)| sum.checked_add(*size));
    if size != Some(text.len()) {
        return Err(PyValueError::new_err("the batches are not the data"));
    }
    let found = unlocked(py, || {
        // A batch may claim to have more than fit into it.
        let fitting = |(size, number, _): &(usize, i64, i64)| (*number).clamp(0, (*size / SMALLEST) as i64);
        let room = batches.iter().map(fitting).sum::<i64>() as usize;
        let mut records = Records::with_capacity(room, deltas);
        let mut begin = 0;
        for (size, number, base_offset) in batches {
            records.walk(text, begin..begin + size, number, base_offset)?;
            begin += size;
        }
        Some(records)
    })?;
    let Some(records) = found else { return Ok(None) };
    let headers = (!records.headers.is_empty()).then(|| Headers {
        data: data.clone().unbind(),
        of_records: records.of_records,
        all: records.headers,
    });
    let offsets = PyBytes::new(py, bytemuck::cast_slice(&records.offsets));
    let deltas = records.deltas.map(|deltas| PyBytes::new(py, bytemuck::cast_slice(&deltas)));
    Ok(Some((offsets, records.keys.answer(py), records.values.answer(py), headers, deltas)))
}

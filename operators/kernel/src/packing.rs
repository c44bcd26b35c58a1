//! Many records of one topic, as a record batch holds them, and the partitions that their keys choose.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::batches;
use crate::guard::unlocked;
use crate::partitions::Partitioner;
use crate::parts::Parts;

/// Bytes of a batch before its first record.
const BATCH_HEADER: usize = 61;
/// The partition of a record without a key.
const NO_KEY: i64 = -1;

/// One of several columns of headers.
struct Header<'a> {
    /// The name as it is written.
    name: Vec<u8>,
    /// What the numbers are places of, None where a record has no such header; or they are what is told.
    texts: Option<Vec<Option<&'a [u8]>>>,
    /// Of each record.
    numbers: Vec<i64>,
}

impl Header<'_> {
    /// What it says of a record, if that has it.
    fn text<'b>(&'b self, row: usize, digits: &'b mut itoa::Buffer) -> Option<&'b [u8]> {
        let number = self.numbers[row];
        match &self.texts {
            Some(texts) => texts[number as usize],
            None => Some(digits.format(number).as_bytes()),
        }
    }

    /// Whether a record has the same as the one before.
    fn is_same(&self, row: usize) -> bool {
        row > 0 && self.numbers[row] == self.numbers[row - 1]
    }
}

/// Headers that records had before, to be written behind a prefix, null ones too.
struct Carried<'a> {
    of: batches::Parts<'a>,
    records: Vec<usize>,
    prefix: &'a [u8],
}

impl Carried<'_> {
    /// Write those of a record; how many they are.
    fn write(&self, row: usize, to: &mut Vec<u8>) -> usize {
        let mut count = 0;
        for (name, value) in self.of.headers(self.records[row]) {
            write_number((self.prefix.len() + name.len()) as i64, to);
            to.extend_from_slice(self.prefix);
            to.extend_from_slice(name.as_bytes());
            write_text(value, to);
            count += 1;
        }
        count
    }
}

/// The headers of one record after the other, as they are written.
struct Headers<'a> {
    columns: &'a [Header<'a>],
    carried: Option<Carried<'a>>,
    written: Vec<u8>,
    ends: Vec<End>,
}

/// Up to one of the columns.
#[derive(Clone, Copy, Default)]
struct End {
    /// Where it ends in what is written.
    at: usize,
    /// How many headers there are.
    count: usize,
    /// The bytes of what it says, if there is such a header.
    text: Option<usize>,
}

impl Headers<'_> {
    /// How many headers a record has, and all of them.
    fn of(&mut self, row: usize) -> (usize, &[u8]) {
        self.written.truncate(self.ends.last().copied().unwrap_or_default().at);
        // Most are those of the record before, and most others are as long as they were there.
        if let Some(first) = (0..self.columns.len()).find(|at| !self.overwrite(*at, row)) {
            self.write(first, row);
        }
        let mut count = self.ends.last().map_or(0, |end| end.count);
        if let Some(carried) = &self.carried {
            count += carried.write(row, &mut self.written);
        }
        (count, &self.written)
    }

    /// Let the text of a column be that of this record; false if there is no room for it.
    fn overwrite(&mut self, column: usize, row: usize) -> bool {
        let Some(end) = self.ends.get(column) else { return false };
        if self.columns[column].is_same(row) {
            return true;
        }
        let mut digits = itoa::Buffer::new();
        match (self.columns[column].text(row, &mut digits), end.text) {
            (Some(text), Some(size)) if text.len() == size => {
                self.written[end.at - size..end.at].copy_from_slice(text);
                true
            }
            (text, size) => text.is_none() && size.is_none(),
        }
    }

    /// Write the columns from one on.
    fn write(&mut self, first: usize, row: usize) {
        self.ends.truncate(first);
        let mut end = self.ends.last().copied().unwrap_or_default();
        self.written.truncate(end.at);
        for column in &self.columns[first..] {
            let mut digits = itoa::Buffer::new();
            let text = column.text(row, &mut digits);
            if text.is_some() {
                self.written.extend_from_slice(&column.name);
                write_text(text, &mut self.written);
                end.count += 1;
            }
            (end.at, end.text) = (self.written.len(), text.map(<[u8]>::len));
            self.ends.push(end);
        }
    }
}

/// Records that are written one after the other, in pieces.
struct Packing<'a> {
    keys: &'a [Option<&'a [u8]>],
    values: &'a [Option<&'a [u8]>],
    headers: Headers<'a>,
    /// A piece has fewer bytes with the header of a batch, as of aiokafka, unless a single record has more.
    most: usize,
    /// The next record.
    row: usize,
}

impl Packing<'_> {
    /// Write the next piece; how many records are in it.
    fn next(&mut self, piece: &mut Vec<u8>) -> usize {
        piece.clear();
        let first = self.row;
        while self.row < self.keys.len() {
            let (key, value) = (self.keys[self.row], self.values[self.row]);
            let (count, headers) = self.headers.of(self.row);
            let place = (self.row - first) as i64;
            // No attributes, no time after that of the batch, the place, and the rest.
            let inner = 2
                + size_of_number(place)
                + size_of_text(key)
                + size_of_text(value)
                + size_of_number(count as i64)
                + headers.len();
            let size = BATCH_HEADER + piece.len() + size_of_number(inner as i64) + inner;
            if place > 0 && size >= self.most {
                break;
            }
            write_number(inner as i64, piece);
            piece.extend_from_slice(&[0, 0]);
            write_number(place, piece);
            write_text(key, piece);
            write_text(value, piece);
            write_number(count as i64, piece);
            piece.extend_from_slice(headers);
            self.row += 1;
        }
        self.row - first
    }
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

/// The bytes of a number as it is written.
fn size_of_number(number: i64) -> usize {
    (70 - (zigzag(number) | 1).leading_zeros() as usize) / 7
}

/// The bytes of a text and of its length.
fn size_of_text(text: Option<&[u8]>) -> usize {
    text.map_or(1, |text| size_of_number(text.len() as i64) + text.len())
}

/// A number as Kafka has it: zigzag, seven bits a byte, the lowest first.
fn write_number(number: i64, to: &mut Vec<u8>) {
    let mut left = zigzag(number);
    while left >= 0x80 {
        to.push(left as u8 | 0x80);
        left >>= 7;
    }
    to.push(left as u8);
}

/// A text behind its length, which is -1 if there is none.
fn write_text(text: Option<&[u8]>, to: &mut Vec<u8>) {
    write_number(text.map_or(-1, |text| text.len() as i64), to);
    to.extend_from_slice(text.unwrap_or_default());
}

/// A column of headers as Python gives it: the name, texts if they are no numbers, and places or numbers.
type Given<'py> = (String, Option<Parts<'py>>, PyBuffer<i64>);

/// Headers to be carried on as Python gives them: those that were read, of which records, and the prefix.
type Kept<'py> = (Bound<'py, batches::Headers>, PyBuffer<i64>, String);

fn header<'a>(py: Python, (name, texts, numbers): &'a Given) -> PyResult<Header<'a>> {
    let numbers = numbers.to_vec(py)?;
    let texts = texts.as_ref().map(Parts::each).transpose()?;
    if let Some(texts) = &texts {
        let there = |place: &i64| usize::try_from(*place).is_ok_and(|place| place < texts.len());
        if !numbers.iter().all(there) {
            return Err(PyValueError::new_err(format!("{name} has {} texts", texts.len())));
        }
    }
    let mut written = Vec::new();
    write_text(Some(name.as_bytes()), &mut written);
    Ok(Header { name: written, texts, numbers })
}

fn carried<'a>(py: Python<'a>, (headers, records, prefix): &'a Kept<'a>) -> PyResult<Carried<'a>> {
    let of = headers.get().parts(py);
    let records = of.records(&records.to_vec(py)?)?;
    Ok(Carried { of, records, prefix: prefix.as_bytes() })
}

/// Records with these keys, values and headers, without the header of their batches, in pieces that have fewer
/// than `most` bytes with it unless a single record has more: `take` is called with each, and how many are in it.
///
/// A record has no header of a column whose text is None; `kept` headers follow those of the columns.
///
/// Raises ValueError if they are not equally many, or a text or part does not exist, and IndexError if a record
/// whose headers are kept does not.
#[pyfunction]
#[pyo3(signature = (keys, values, headers, most, take, kept=None))]
pub fn records<'py>(
    py: Python<'py>,
    keys: Parts<'py>,
    values: Parts<'py>,
    headers: Vec<Given<'py>>,
    most: usize,
    take: &Bound<'py, PyAny>,
    kept: Option<Kept<'py>>,
) -> PyResult<()> {
    let (keys, values) = (keys.each()?, values.each()?);
    let columns = headers.iter().map(|one| header(py, one)).collect::<PyResult<Vec<_>>>()?;
    let carried = kept.as_ref().map(|kept| carried(py, kept)).transpose()?;
    if keys.len() != values.len()
        || columns.iter().any(|one| one.numbers.len() != keys.len())
        || carried.as_ref().is_some_and(|one| one.records.len() != keys.len())
    {
        return Err(PyValueError::new_err("columns of different lengths"));
    }
    let headers = Headers { columns: &columns, carried, written: Vec::new(), ends: Vec::new() };
    let mut packing = Packing { keys: &keys, values: &values, headers, most, row: 0 };
    // Memory that is new costs more than what is written to it.
    let mut piece = Vec::new();
    while packing.row < keys.len() {
        let count = unlocked(py, || packing.next(&mut piece))?;
        take.call1((PyBytes::new(py, &piece), count))?;
    }
    Ok(())
}

/// int64 of the partition that the client library of Java gives each key among the partitions, -1 where there is none.
#[pyfunction]
pub fn partitions<'py>(py: Python<'py>, keys: Parts<'py>, count: u32) -> PyResult<Bound<'py, PyBytes>> {
    if count == 0 {
        return Err(PyValueError::new_err("no partition"));
    }
    let of = |key: &[u8]| i64::from(Partitioner::Murmur2.partition(key, count));
    let found: Vec<i64> = keys.each()?.into_iter().map(|key| key.map_or(NO_KEY, of)).collect();
    Ok(PyBytes::new(py, bytemuck::cast_slice(&found)))
}

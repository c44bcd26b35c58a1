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
    /// Write it, if the record has it; how many were written.
    fn write(&self, row: usize, to: &mut Vec<u8>) -> usize {
        let number = self.numbers[row];
        let mut digits = itoa::Buffer::new();
        let text = match &self.texts {
            Some(texts) => texts[number as usize],
            None => Some(digits.format(number).as_bytes()),
        };
        if text.is_some() {
            to.extend_from_slice(&self.name);
            write_text(text, to);
        }
        usize::from(text.is_some())
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
    /// Where each of the columns ends, and how many headers there are up to it.
    ends: Vec<(usize, usize)>,
}

impl Headers<'_> {
    /// How many headers a record has, and all of them.
    fn of(&mut self, row: usize) -> (usize, &[u8]) {
        // The first ones are mostly those of the record before.
        let same = |column: &&Header| row > 0 && column.numbers[row] == column.numbers[row - 1];
        let first = self.columns.iter().take_while(same).count();
        self.ends.truncate(first);
        let (end, mut count) = self.ends.last().copied().unwrap_or((0, 0));
        self.written.truncate(end);
        for column in &self.columns[first..] {
            count += column.write(row, &mut self.written);
            self.ends.push((self.written.len(), count));
        }
        if let Some(carried) = &self.carried {
            count += carried.write(row, &mut self.written);
        }
        (count, &self.written)
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
    /// A record from its key on, and what stands before it.
    rest: Vec<u8>,
    start: Vec<u8>,
}

impl Packing<'_> {
    /// Write the next piece; how many records are in it.
    fn next(&mut self, piece: &mut Vec<u8>) -> usize {
        piece.clear();
        let first = self.row;
        while self.row < self.keys.len() {
            let (row, place) = (self.row, self.row - first);
            self.rest.clear();
            write_text(self.keys[row], &mut self.rest);
            write_text(self.values[row], &mut self.rest);
            let (count, headers) = self.headers.of(row);
            write_number(count as i64, &mut self.rest);
            self.rest.extend_from_slice(headers);
            begin(place, self.rest.len(), &mut self.start);
            let size = BATCH_HEADER + piece.len() + self.start.len() + self.rest.len();
            if place > 0 && size >= self.most {
                break;
            }
            piece.extend_from_slice(&self.start);
            piece.extend_from_slice(&self.rest);
            self.row += 1;
        }
        self.row - first
    }
}

/// What stands before the key of the record at this place of a batch, whose `rest` follows: its length,
/// no attributes, no time after that of the batch, the place.
fn begin(place: usize, rest: usize, to: &mut Vec<u8>) {
    to.clear();
    write_number(place as i64, to);
    let inner = 2 + to.len();
    to.clear();
    write_number((inner + rest) as i64, to);
    to.extend_from_slice(&[0, 0]);
    write_number(place as i64, to);
}

/// A number as Kafka has it: zigzag, seven bits a byte, the lowest first.
fn write_number(number: i64, to: &mut Vec<u8>) {
    let mut left = (number << 1 ^ number >> 63) as u64;
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
    let (rest, start) = (Vec::new(), Vec::new());
    let mut packing = Packing { keys: &keys, values: &values, headers, most, row: 0, rest, start };
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

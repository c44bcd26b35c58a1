//! Where re-keyed events come from, by the headers that the re-keying stage writes.

use std::ops::Range;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::batches::{Headers, Parts, Spans};
use crate::guard::unlocked;

/// The names of headers: the partition, offset and append time of an event, its own time and key if it has them,
/// and up to when all events of a partition have been passed on; and what its own headers begin with.
#[derive(FromPyObject)]
pub struct Names {
    partition: String,
    offset: String,
    time: String,
    own_time: String,
    key: String,
    passed: String,
    prefix: String,
}

/// Where a record has each of these headers, if it has it.
#[derive(Default)]
struct Said {
    partition: Option<Range<usize>>,
    offset: Option<Range<usize>>,
    time: Option<Range<usize>>,
    own_time: Option<Range<usize>>,
    key: Option<Range<usize>>,
    passed: Option<Range<usize>>,
    has_own: bool,
}

impl Said {
    /// Nothing if a header is there twice, or is null.
    fn of(parts: Parts, record: usize, names: &Names) -> Option<Self> {
        let mut said = Said::default();
        for (name, value) in parts.places(record) {
            let place = match parts.at(name) {
                name if name == names.partition.as_bytes() => &mut said.partition,
                name if name == names.offset.as_bytes() => &mut said.offset,
                name if name == names.time.as_bytes() => &mut said.time,
                name if name == names.own_time.as_bytes() => &mut said.own_time,
                name if name == names.key.as_bytes() => &mut said.key,
                name if name == names.passed.as_bytes() => &mut said.passed,
                name => {
                    said.has_own |= name.starts_with(names.prefix.as_bytes());
                    continue;
                }
            };
            if place.replace(value.clone()?).is_some() {
                return None;
            }
        }
        Some(said)
    }
}

/// Of what is written: a sign and 19 digits.
const LONGEST_NUMBER: usize = 20;

/// What was found in records.
#[derive(Default)]
struct Found {
    /// The places of events among the records.
    places: Vec<i64>,
    /// Append time, partition and offset of each event.
    origins: Vec<i64>,
    own_times: Vec<i64>,
    keys: Spans,
    /// Partition and time.
    marks: Vec<(i64, i64)>,
    has_own: bool,
}

impl Found {
    fn of(parts: Parts, records: &[usize], names: &Names, no_time: i64) -> Option<Self> {
        // Python refuses numbers of thousands of digits, be they zeros.
        let number = |place: Range<usize>| {
            let text = Some(parts.at(&place)).filter(|text| text.len() <= LONGEST_NUMBER)?;
            std::str::from_utf8(text).ok()?.parse::<i64>().ok()
        };
        let mut found = Found::default();
        for (place, record) in records.iter().enumerate() {
            let said = Said::of(parts, *record, names)?;
            let partition = number(said.partition?)?;
            if let Some(passed) = said.passed {
                found.marks.push((partition, number(passed)?));
                continue;
            }
            found.places.push(place as i64);
            found.origins.extend([number(said.time?)?, partition, number(said.offset?)?]);
            found.own_times.push(said.own_time.map_or(Some(no_time), number)?);
            found.keys.push(said.key);
            found.has_own |= said.has_own;
        }
        Some(found)
    }
}

/// int64 of the places of events, of their origins in threes, of their own times, of starts and lengths of their
/// keys in the data of the headers; marks; and whether any has headers of its own.
type Answer<'py> = (
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>),
    Vec<(i64, i64)>,
    bool,
);

/// What the headers of these records say; None if those of one are not as the re-keying stage writes them.
///
/// `no_time` is the own time of events that have none. Raises IndexError if a record does not exist.
#[pyfunction]
pub fn passed_on<'py>(
    py: Python<'py>,
    headers: &Bound<'py, Headers>,
    records: PyBuffer<i64>,
    names: Names,
    no_time: i64,
) -> PyResult<Option<Answer<'py>>> {
    let parts = headers.get().parts(py);
    let records = parts.records(&records.to_vec(py)?)?;
    let Some(found) = unlocked(py, || Found::of(parts, &records, &names, no_time))? else { return Ok(None) };
    let bytes = |numbers: &[i64]| PyBytes::new(py, bytemuck::cast_slice(numbers));
    Ok(Some((
        bytes(&found.places),
        bytes(&found.origins),
        bytes(&found.own_times),
        found.keys.answer(py),
        found.marks,
        found.has_own,
    )))
}

//! Keys and values of records, as Python has them.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

/// Texts of Python, or none: a list, or a text with int64 of starts and lengths, of which -1 is none.
pub enum Parts<'py> {
    List(Vec<Option<Bound<'py, PyBytes>>>),
    Of(Bound<'py, PyBytes>, Vec<i64>, Vec<i64>),
}

impl<'py> FromPyObject<'py> for Parts<'py> {
    fn extract_bound(from: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(list) = from.downcast::<PyList>() {
            return Ok(Parts::List(list.iter().map(|one| one.extract()).collect::<PyResult<_>>()?));
        }
        let (data, starts, lengths): (Bound<PyBytes>, PyBuffer<i64>, PyBuffer<i64>) = from
            .extract()
            .map_err(|_| PyTypeError::new_err("neither a list of bytes nor parts of a text"))?;
        Ok(Parts::Of(data, starts.to_vec(from.py())?, lengths.to_vec(from.py())?))
    }
}

impl Parts<'_> {
    /// Each of them. Raises ValueError if one lies outside of the text.
    pub fn each(&self) -> PyResult<Vec<Option<&[u8]>>> {
        match self {
            Parts::List(list) => Ok(list.iter().map(|one| one.as_ref().map(|one| one.as_bytes())).collect()),
            Parts::Of(data, starts, lengths) => {
                let (data, mut parts) = (data.as_bytes(), Vec::with_capacity(starts.len()));
                for (start, length) in starts.iter().zip(lengths) {
                    let outside = || PyValueError::new_err("a part lies outside of the text");
                    parts.push(part(data, *start, *length).ok_or_else(outside)?);
                }
                Ok(parts)
            }
        }
    }
}

fn part(data: &[u8], start: i64, length: i64) -> Option<Option<&[u8]>> {
    if length == -1 {
        return Some(None);
    }
    let (start, length) = (usize::try_from(start).ok()?, usize::try_from(length).ok()?);
    Some(Some(data.get(start..start.checked_add(length)?)?))
}

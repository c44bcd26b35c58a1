//! Fields of many documents at once.

use std::panic::{catch_unwind, AssertUnwindSafe};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::columns::Column;
use crate::document::{Found, Kind, Place};
use crate::guard::unlocked;

/// Reads fields of JSON objects.
#[pyclass(frozen, module = "eventveil_kernel")]
pub struct Reader {
    root: Place,
    kinds: Vec<Kind>,
    max_bytes: usize,
}

/// The places of the values that are sure, as int64, and a column for each field.
type Read<'py> = (Bound<'py, PyBytes>, Vec<Column>);

impl Reader {
    fn read_all(&self, values: &[Option<&[u8]>]) -> (Vec<i64>, Vec<Column>) {
        let mut rows = Vec::with_capacity(values.len());
        let mut columns: Vec<Column> =
            self.kinds.iter().map(|kind| Column::new(*kind, values.len())).collect();
        let mut found: Vec<Found> = self.kinds.iter().map(|_| Found::Nothing).collect();
        for (row, value) in values.iter().enumerate() {
            let Some(value) = value.filter(|value| value.len() <= self.max_bytes) else { continue };
            // A panic in the parser would be a bug, and cost this value its fast reading and nothing more.
            let sure = catch_unwind(AssertUnwindSafe(|| self.root.read(value, &mut found))).unwrap_or(false);
            if sure {
                rows.push(row as i64);
                columns.iter_mut().zip(&found).for_each(|(column, found)| column.push(found));
            }
        }
        (rows, columns)
    }

    fn answer<'py>(&self, py: Python<'py>, values: &[Option<&[u8]>]) -> PyResult<Read<'py>> {
        let (rows, columns) = unlocked(py, || self.read_all(values))?;
        Ok((PyBytes::new(py, bytemuck::cast_slice(&rows)), columns))
    }
}

#[pymethods]
impl Reader {
    /// `fields` are the tokens and the kind of each. Raises ValueError if no object can hold all of them.
    #[new]
    fn new(fields: Vec<(Vec<String>, String)>, max_bytes: usize) -> PyResult<Self> {
        let (mut root, mut kinds) = (Place::root(), Vec::new());
        for (tokens, kind) in fields {
            let kind = match kind.as_str() {
                "string" => Kind::Text,
                "integer" => Kind::Integer,
                "time" => Kind::Time,
                _ => return Err(PyValueError::new_err(format!("no kind {kind}"))),
            };
            if !root.add(&tokens, kinds.len(), kind) {
                return Err(PyValueError::new_err("no object has all of these fields"));
            }
            kinds.push(kind);
        }
        Ok(Reader { root, kinds, max_bytes })
    }

    /// Read a list of bytes or None.
    fn read<'py>(&self, py: Python<'py>, values: &Bound<'py, PyList>) -> PyResult<Read<'py>> {
        let held =
            values.iter().map(|one| one.extract()).collect::<PyResult<Vec<Option<Bound<PyBytes>>>>>()?;
        let values: Vec<Option<&[u8]>> =
            held.iter().map(|one| one.as_ref().map(|one| one.as_bytes())).collect();
        self.answer(py, &values)
    }

    /// Read parts of a text, int64 of their starts and lengths; a length of -1 is None.
    fn read_parts<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyBytes>,
        starts: PyBuffer<i64>,
        lengths: PyBuffer<i64>,
    ) -> PyResult<Read<'py>> {
        let (data, starts, lengths) = (data.as_bytes(), starts.to_vec(py)?, lengths.to_vec(py)?);
        let part = |(start, length): (i64, i64)| match length {
            -1 => Some(None),
            _ => {
                let (start, length) = (usize::try_from(start).ok()?, usize::try_from(length).ok()?);
                Some(Some(data.get(start..start.checked_add(length)?)?))
            }
        };
        let values = starts.into_iter().zip(lengths).map(part).collect::<Option<Vec<Option<&[u8]>>>>();
        let values = values.ok_or_else(|| PyValueError::new_err("a part lies outside of the text"))?;
        self.answer(py, &values)
    }
}

//! Fields of many documents at once.

use std::panic::{catch_unwind, AssertUnwindSafe};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::columns::Column;
use crate::document::{Found, Kind, Place, Verdict};
use crate::guard::unlocked;
use crate::parts::Parts;

/// Reads fields of JSON objects.
#[pyclass(frozen, module = "eventveil_kernel")]
pub struct Reader {
    root: Place,
    kinds: Vec<Kind>,
    max_bytes: usize,
}

/// The places of the values that are sure and of those that are no JSON, as int64, and a column for each field
/// of the first.
type Read<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Vec<Column>);

impl Reader {
    fn read_all(&self, values: &[Option<&[u8]>]) -> (Vec<i64>, Vec<i64>, Vec<Column>) {
        let (mut rows, mut broken) = (Vec::with_capacity(values.len()), Vec::new());
        let mut columns: Vec<Column> =
            self.kinds.iter().map(|kind| Column::new(*kind, values.len())).collect();
        let mut found: Vec<Found> = self.kinds.iter().map(|_| Found::Nothing).collect();
        for (row, value) in values.iter().enumerate() {
            let Some(value) = value.filter(|value| value.len() <= self.max_bytes) else { continue };
            // A panic in the parser would be a bug, and cost this value its fast reading and nothing more.
            let verdict = catch_unwind(AssertUnwindSafe(|| self.root.read(value, &mut found)))
                .unwrap_or(Verdict::Unsure);
            match verdict {
                Verdict::Read => {
                    rows.push(row as i64);
                    columns.iter_mut().zip(&found).for_each(|(column, found)| column.push(found));
                }
                Verdict::NoJson => broken.push(row as i64),
                Verdict::Unsure => {}
            }
        }
        (rows, broken, columns)
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

    /// Read `Parts`.
    fn read<'py>(&self, py: Python<'py>, values: Parts<'py>) -> PyResult<Read<'py>> {
        let values = values.each()?;
        let (rows, broken, columns) = unlocked(py, || self.read_all(&values))?;
        let [rows, broken] = [rows, broken].map(|places| PyBytes::new(py, bytemuck::cast_slice(&places)));
        Ok((rows, broken, columns))
    }
}

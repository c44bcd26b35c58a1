//! One number for each event: of its user, of its column.

use std::borrow::Cow;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::columns::Column;

/// Numbers that stay here between two questions; Python sees them only if it asks for their bytes.
#[pyclass(frozen, module = "eventveil_kernel")]
pub struct Integers(pub Vec<i64>);

#[pymethods]
impl Integers {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// All of them as int64.
    fn bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, bytemuck::cast_slice(&self.0))
    }
}

/// The numbers in `Integers`, in a column of integers or times, or in an int64 array of numpy.
///
/// Raises TypeError if there are none in it.
pub fn integers<'a>(py: Python, value: &'a Bound<PyAny>) -> PyResult<Cow<'a, [i64]>> {
    if let Ok(found) = value.downcast::<Integers>() {
        return Ok(Cow::Borrowed(&found.get().0));
    }
    if let Ok(column) = value.downcast::<Column>() {
        return column.get().as_integers().map(Cow::Borrowed);
    }
    Ok(Cow::Owned(PyBuffer::<i64>::get(value)?.to_vec(py)?))
}

/// The same, of times: `UNSURE_TIME` where one is out of range.
pub fn times<'a>(py: Python, value: &'a Bound<PyAny>) -> PyResult<Cow<'a, [i64]>> {
    match value.downcast::<Column>() {
        Ok(column) => column.get().as_times(),
        Err(_) => integers(py, value),
    }
}

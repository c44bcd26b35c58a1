//! Fields of many documents at once, and texts beside them.

use std::borrow::Cow;
use std::panic::{catch_unwind, AssertUnwindSafe};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::columns::Column;
use crate::document::{Found, Kind, Place, Verdict};
use crate::guard::unlocked;
use crate::parts::Parts;
use crate::times::Unit;

/// Reads fields of JSON objects.
#[pyclass(frozen, module = "eventveil_kernel")]
pub struct Reader {
    root: Place,
    kinds: Vec<Kind>,
    /// Of the fields, this many of the last ones are beside the objects.
    beside: usize,
    max_bytes: usize,
}

/// The places of the values that are sure and of those that are no JSON, as int64, and a column for each field
/// of the first.
type Read<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Vec<Column>);

type Texts<'a> = Vec<Option<&'a [u8]>>;

impl Reader {
    fn read_all(&self, values: &Texts, beside: &[Texts]) -> (Vec<i64>, Vec<i64>, Vec<Column>) {
        let (mut rows, mut broken) = (Vec::with_capacity(values.len()), Vec::new());
        let mut columns: Vec<Column> =
            self.kinds.iter().map(|kind| Column::new(*kind, values.len())).collect();
        let mut found: Vec<Found> = self.kinds.iter().map(|_| Found::Nothing).collect();
        let inside = self.kinds.len() - self.beside;
        for (row, value) in values.iter().enumerate() {
            let Some(value) = value.filter(|value| value.len() <= self.max_bytes) else { continue };
            // A panic in the parser would be a bug, and cost this value its fast reading and nothing more.
            let verdict = catch_unwind(AssertUnwindSafe(|| self.root.read(value, &mut found[..inside])))
                .unwrap_or(Verdict::Unsure);
            match verdict {
                Verdict::Read => {
                    if take_beside(&mut found[inside..], beside, row) {
                        rows.push(row as i64);
                        columns.iter_mut().zip(&found).for_each(|(column, found)| column.push(found));
                    }
                }
                Verdict::NoJson => broken.push(row as i64),
                Verdict::Unsure => {}
            }
        }
        (rows, broken, columns)
    }
}

/// Whether all that is beside a row is there, and text.
fn take_beside<'a>(found: &mut [Found<'a>], beside: &[Texts<'a>], row: usize) -> bool {
    found.iter_mut().zip(beside).all(|(to, texts)| {
        let text = texts[row].filter(|text| std::str::from_utf8(text).is_ok());
        *to = text.map_or(Found::Nothing, |text| Found::Text(Cow::Borrowed(text)));
        text.is_some()
    })
}

fn kind_of(name: &str) -> PyResult<Kind> {
    Ok(match name {
        "string" => Kind::Text,
        "integer" => Kind::Integer,
        "either" => Kind::Either,
        "s" => Kind::Time(Unit::Second),
        "ms" => Kind::Time(Unit::Millisecond),
        "us" => Kind::Time(Unit::Microsecond),
        "ns" => Kind::Time(Unit::Nanosecond),
        _ => return Err(PyValueError::new_err(format!("no kind {name}"))),
    })
}

#[pymethods]
impl Reader {
    /// `fields` are the tokens and the kind of each; behind them come `beside` texts that are no part of values.
    /// Raises ValueError if no object can hold all of the fields.
    #[new]
    #[pyo3(signature = (fields, max_bytes, beside=0))]
    fn new(fields: Vec<(Vec<String>, String)>, max_bytes: usize, beside: usize) -> PyResult<Self> {
        let (mut root, mut kinds) = (Place::root(), Vec::new());
        for (tokens, kind) in fields {
            let kind = kind_of(&kind)?;
            if !root.add(&tokens, kinds.len(), kind) {
                return Err(PyValueError::new_err("no object has all of these fields"));
            }
            kinds.push(kind);
        }
        kinds.extend(std::iter::repeat_n(Kind::Text, beside));
        Ok(Reader { root, kinds, beside, max_bytes })
    }

    /// Read `Parts`, and as many beside them as the reader was made for. Raises ValueError if these are others.
    #[pyo3(signature = (values, beside=Vec::new()))]
    fn read<'py>(&self, py: Python<'py>, values: Parts<'py>, beside: Vec<Parts<'py>>) -> PyResult<Read<'py>> {
        let values = values.each()?;
        let beside = beside.iter().map(Parts::each).collect::<PyResult<Vec<_>>>()?;
        if beside.len() != self.beside || beside.iter().any(|texts| texts.len() != values.len()) {
            return Err(PyValueError::new_err("what is beside the values is not what was asked for"));
        }
        let (rows, broken, columns) = unlocked(py, || self.read_all(&values, &beside))?;
        let [rows, broken] = [rows, broken].map(|places| PyBytes::new(py, bytemuck::cast_slice(&places)));
        Ok((rows, broken, columns))
    }
}

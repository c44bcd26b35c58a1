//! Work without the interpreter's lock, whose panics become errors.

use std::panic::{catch_unwind, AssertUnwindSafe};

use pyo3::exceptions::PyRuntimeError;
use pyo3::marker::Ungil;
use pyo3::prelude::*;

/// Do something with the lock released.
///
/// A panic would be a bug. It becomes RuntimeError, which no owner of a partition survives or retries: the worker
/// ends, and the next one begins at the durable state. (What pyo3 makes of a panic by itself is no
/// `Exception`.)
pub fn unlocked<T: Ungil + Send>(py: Python, work: impl FnOnce() -> T + Ungil + Send) -> PyResult<T> {
    py.allow_threads(|| catch_unwind(AssertUnwindSafe(work))).map_err(|_| {
        PyRuntimeError::new_err(
            "the compiled kernel has failed, a bug; EVENTVEIL_KERNEL=off reads without it, with the same results",
        )
    })
}

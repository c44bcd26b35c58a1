//! Reads the events of Eventveil in bulk, with the interpreter's lock released.
//!
//! Whatever is read here would have been read the same by `eventveil.decoding.rules`, which judges all the
//! rest. `python -m tests.fuzz` compares the two.

use pyo3::prelude::*;

mod batches;
mod columns;
mod document;
mod guard;
mod numbers;
mod reader;
mod times;

/// What `eventveil` asks for before it uses this library; to be raised with every change that it would notice.
const INTERFACE: u32 = 1;

#[pymodule]
fn eventveil_kernel(module: &Bound<PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add_function(wrap_pyfunction!(batches::walk, module)?)?;
    module.add_class::<batches::Headers>()?;
    module.add_class::<columns::Column>()?;
    module.add_class::<numbers::Numbers>()?;
    module.add_class::<reader::Reader>()?;
    Ok(())
}

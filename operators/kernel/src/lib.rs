//! Reads the events of Eventveil in bulk, with the interpreter's lock released.
//!
//! Whatever is read here would have been read the same by `eventveil.decoding.rules`, which judges all the
//! rest. `python -m tests.fuzz` compares the two.

use pyo3::prelude::*;

mod batch_bytes;
mod batches;
mod columns;
mod contributions;
mod document;
mod guard;
mod integers;
mod numbers;
mod packing;
mod partitions;
mod parts;
mod placing;
mod reader;
mod rekeyed;
mod scan;
mod tally;
mod times;
mod users;

/// What `eventveil` asks for before it uses this library; to be raised with every change that it would notice.
const INTERFACE: u32 = 12;

#[pymodule]
fn eventveil_kernel(module: &Bound<PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add_function(wrap_pyfunction!(batch_bytes::checksum, module)?)?;
    module.add_function(wrap_pyfunction!(batch_bytes::gunzip, module)?)?;
    module.add_function(wrap_pyfunction!(batches::walk, module)?)?;
    module.add_function(wrap_pyfunction!(packing::partitions, module)?)?;
    module.add_function(wrap_pyfunction!(packing::records, module)?)?;
    module.add_function(wrap_pyfunction!(rekeyed::passed_on, module)?)?;
    module.add_class::<batches::Headers>()?;
    module.add_class::<columns::Column>()?;
    module.add_class::<contributions::Contributions>()?;
    module.add_class::<integers::Integers>()?;
    module.add_class::<numbers::Numbers>()?;
    module.add_class::<placing::Placed>()?;
    module.add_class::<placing::Placer>()?;
    module.add_class::<reader::Reader>()?;
    module.add_class::<tally::Tally>()?;
    module.add_class::<users::Users>()?;
    Ok(())
}

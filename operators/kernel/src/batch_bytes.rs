//! The bytes of a record batch: their checksum, and the records in them where gzip has packed them.
//!
//! The client library has both too: the checksum without the processor's instruction for it, at a seventh of
//! the speed, and gzip by zlib, at half.

use std::io::Read;

use flate2::bufread::MultiGzDecoder;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::guard::unlocked;

/// CRC-32C of a part of the data. Raises ValueError if there is no such part.
#[pyfunction]
pub fn checksum(py: Python, data: &[u8], begin: usize, end: usize) -> PyResult<u32> {
    let part =
        data.get(begin..end).ok_or_else(|| PyValueError::new_err("a part lies outside of the data"))?;
    unlocked(py, || crc32c::crc32c(part))
}

/// What gzip has packed; None if it is damaged, or more than `most` bytes.
#[pyfunction]
pub fn gunzip<'py>(py: Python<'py>, data: &[u8], most: usize) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let found = unlocked(py, || {
        // At its end gzip has the size of what was packed last, which is all of it but in odd cases.
        let size = data.last_chunk().map_or(0, |size| u32::from_le_bytes(*size) as usize);
        let mut unpacked = Vec::with_capacity(size.min(most).saturating_add(1));
        let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
        MultiGzDecoder::new(data).take(limit).read_to_end(&mut unpacked).ok()?;
        (unpacked.len() <= most).then_some(unpacked)
    })?;
    Ok(found.map(|unpacked| PyBytes::new(py, &unpacked)))
}

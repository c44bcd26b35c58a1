//! Which events are certainly on time, and at which timestamps; what is not certain is put to the rule.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::columns::UNSURE_TIME;
use crate::guard::unlocked;
use crate::integers::{integers, times};
use crate::tally::Events;
use crate::users::Users;

/// The column of an event that the rule must judge, and the append time of a record that has none.
pub const UNSURE: i64 = -2;
const NO_APPEND_TIME: i64 = -1;

/// The timeline of a stream, in milliseconds.
#[pyclass(frozen, module = "eventveil_kernel")]
pub struct Placer {
    origin: i64,
    interval: i64,
    lateness: i64,
    max_ahead: i64,
    /// Whether append times are those of captures, and the first timestamp of the stream.
    captured: bool,
    first: i64,
    /// The reference of `max_ahead` moves by this many timestamps at a time.
    step: i64,
}

/// What the time of an event is compared with.
enum Clock {
    /// By row of the chunk.
    AppendTimes(Vec<i64>),
    /// Offsets by row of the chunk; the last timestamps of boundaries after that which has none, and the
    /// offsets of boundaries before that which nothing reaches.
    Boundaries { offsets: Vec<i64>, lasts: Vec<i64>, ends: Vec<i64> },
}

/// Events on time: rows of the chunk, ascending, and the user, the column and the timestamp of each.
#[pyclass(frozen, module = "eventveil_kernel")]
pub struct Placed {
    rows: Vec<i64>,
    users: Vec<i64>,
    columns: Vec<i64>,
    timestamps: Vec<i64>,
}

impl Placed {
    fn with_capacity(room: usize) -> Self {
        let new = || Vec::with_capacity(room);
        Placed { rows: new(), users: new(), columns: new(), timestamps: new() }
    }

    pub fn events(&self) -> Events<'_> {
        let Placed { rows, users, columns, timestamps } = self;
        Events { rows, users, columns, timestamps }
    }
}

#[pymethods]
impl Placed {
    fn __len__(&self) -> usize {
        self.rows.len()
    }

    /// int64 of the rows.
    fn row_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, bytemuck::cast_slice(&self.rows))
    }

    /// int64 of rows, users, columns and timestamps.
    fn bytes<'py>(&self, py: Python<'py>) -> [Bound<'py, PyBytes>; 4] {
        [&self.rows, &self.users, &self.columns, &self.timestamps]
            .map(|one| PyBytes::new(py, bytemuck::cast_slice(one)))
    }
}

/// The timestamp of the event before, and where it begins. The next event mostly has the same, and a division
/// costs more than all else that is asked of it.
struct Before {
    begin: i64,
    timestamp: i64,
}

impl Placer {
    fn timestamp(&self, time: i64, before: &mut Before) -> Option<i64> {
        if time.checked_sub(before.begin).is_some_and(|after| (0..self.interval).contains(&after)) {
            return Some(before.timestamp);
        }
        let since = time.checked_sub(self.origin)?;
        let timestamp = since.div_euclid(self.interval) + 1;
        if let Some(begin) = time.checked_sub(since.rem_euclid(self.interval)) {
            *before = Before { begin, timestamp };
        }
        Some(timestamp)
    }

    fn deadline(&self, timestamp: i64) -> Option<i64> {
        self.origin.checked_add(timestamp.checked_mul(self.interval)?)?.checked_add(self.lateness)
    }

    /// The latest time that an event with this append time may have.
    fn latest(&self, appended: i64) -> Option<i64> {
        if !self.captured {
            return appended.checked_add(self.max_ahead);
        }
        let since = appended.checked_sub(self.lateness)?.checked_sub(self.origin)?;
        let reached = since.div_euclid(self.interval).max(self.first - 1);
        self.deadline(reached.checked_add(1)?)?.checked_add(self.max_ahead)
    }

    /// The same at an offset, where boundaries decide; `reached` is the last timestamp with one below it.
    fn latest_after(&self, reached: i64) -> Option<i64> {
        let following = reached.div_euclid(self.step).checked_add(1)?.checked_mul(self.step)?;
        self.deadline(following)?.checked_add(self.max_ahead)
    }

    fn on_time(&self, row: usize, time: i64, timestamp: i64, clock: &Clock) -> Option<bool> {
        Some(match clock {
            Clock::AppendTimes(appended) => {
                let appended = appended[row];
                appended != NO_APPEND_TIME
                    && time <= self.latest(appended)?
                    && appended < self.deadline(timestamp)?
            }
            Clock::Boundaries { offsets, lasts, ends } => {
                let offset = offsets[row];
                let end = ends[lasts[1..].partition_point(|last| *last < timestamp)];
                let reached = lasts[ends[..ends.len() - 1].partition_point(|end| *end <= offset)];
                offset < end && time <= self.latest_after(reached)?
            }
        })
    }
}

#[pymethods]
impl Placer {
    /// `rules`: origin, interval, lateness and max_ahead, in milliseconds.
    #[new]
    fn new(rules: (i64, i64, i64, i64), captured: bool, first: i64, step: i64) -> PyResult<Self> {
        let (origin, interval, lateness, max_ahead) = rules;
        if interval < 1 || step < 1 {
            return Err(PyValueError::new_err("an interval has a millisecond, and a step a timestamp"));
        }
        Ok(Placer { origin, interval, lateness, max_ahead, captured, first, step })
    }

    /// The events that are certainly on time.
    ///
    /// `fields` are rows, ascending, numbers of users, columns and times that were read, as `integers` takes
    /// them. `clock` is append times by row, or offsets and boundaries: lasts and ends. `since`: the first row,
    /// and the first timestamp.
    #[allow(clippy::type_complexity)]
    fn place(
        &self,
        py: Python,
        users: &Users,
        fields: (Bound<PyAny>, Bound<PyAny>, Bound<PyAny>, Bound<PyAny>),
        clock: (PyBuffer<i64>, Option<(PyBuffer<i64>, PyBuffer<i64>)>),
        since: (i64, i64),
    ) -> PyResult<Placed> {
        let (rows, numbers) = (integers(py, &fields.0)?, integers(py, &fields.1)?);
        let (columns, times) = (integers(py, &fields.2)?, times(py, &fields.3)?);
        let (chunk, (start, earliest)) = (clock.0.to_vec(py)?, since);
        let alike = [numbers.len(), columns.len(), times.len()].iter().all(|size| *size == rows.len());
        let ascending = rows.windows(2).all(|pair| pair[0] < pair[1]);
        let inside = |row: &i64| usize::try_from(*row).is_ok_and(|row| row < chunk.len());
        if !alike || !ascending || ![rows.first(), rows.last()].into_iter().flatten().all(inside) {
            return Err(PyIndexError::new_err("the fields are not those of the chunk"));
        }
        let clock = match clock.1 {
            None => Clock::AppendTimes(chunk),
            Some((lasts, ends)) => {
                let (lasts, ends) = (lasts.to_vec(py)?, ends.to_vec(py)?);
                if lasts.is_empty() || lasts.len() != ends.len() {
                    return Err(PyValueError::new_err("boundaries have a timestamp and an offset each"));
                }
                Clock::Boundaries { offsets: chunk, lasts, ends }
            }
        };
        unlocked(py, || {
            let mut placed = Placed::with_capacity(rows.len());
            let mut before = Before { begin: self.origin, timestamp: 1 };
            for (((row, number), column), time) in rows.iter().zip(&*numbers).zip(&*columns).zip(&*times) {
                if *row < start || *column == UNSURE || *time == UNSURE_TIME {
                    continue;
                }
                let Some(timestamp) = self.timestamp(*time, &mut before) else { continue };
                if timestamp < earliest || users.belongs(*number) != Some(true) {
                    continue;
                }
                if self.on_time(*row as usize, *time, timestamp, &clock) == Some(true) {
                    placed.rows.push(*row);
                    placed.users.push(*number);
                    placed.columns.push(*column);
                    placed.timestamps.push(timestamp);
                }
            }
            placed
        })
    }
}

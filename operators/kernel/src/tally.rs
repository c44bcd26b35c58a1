//! Counts of the open timestamps of a stream: who may count is decided by the bounds, event by event.

use std::borrow::Cow;
use std::collections::HashMap;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::contributions::{key_of, Contributions, InColumns};
use crate::guard::unlocked;
use crate::integers::integers;
use crate::placing::{Placed, UNSURE};

/// Columns of events that a declared rule leaves out: a column that is not listed, and the filter.
const IGNORED: i64 = -1;
const FILTERED: i64 = -3;

/// What is known so far of a timestamp that is not closed.
struct Open {
    timestamp: i64,
    contributions: Contributions,
    /// None where all events of a user may be in one column.
    in_columns: Option<InColumns>,
    counts: Vec<i64>,
    /// The last `take` that had events for it, by number.
    touched_by: u64,
}

impl Open {
    /// Whether one more event of the user with this key counts in this column; it is counted.
    fn admit(&mut self, key: u32, column: i64) -> bool {
        match &mut self.in_columns {
            Some(in_columns) => in_columns.admit_one(key, column as u32, &mut self.contributions),
            None => self.contributions.admit_one(key),
        }
    }
}

/// The open timestamps of a stream with listed columns.
#[pyclass(module = "eventveil_kernel")]
pub struct Tally {
    bound: u64,
    columns: usize,
    /// How many events of a user count in one column, if fewer than `bound`.
    per_column: Option<u32>,
    /// One or two as a rule. Hundreds of thousands where clients choose times far ahead, or a file is replayed:
    /// no step may take longer the more are open.
    open: Vec<Open>,
    /// Where each is in `open`, by timestamp. Hashed with secrets, because clients choose the timestamps.
    places: HashMap<i64, usize>,
    takes: u64,
}

/// Events on time, each with its row, its user, its column and its timestamp.
#[derive(Clone, Copy, Default)]
pub struct Events<'a> {
    pub rows: &'a [i64],
    pub users: &'a [i64],
    pub columns: &'a [i64],
    pub timestamps: &'a [i64],
}

impl Events<'_> {
    /// Whether each has its place: rows ascend, users have numbers, and columns are those of the stream.
    fn are_sound(&self, columns: usize) -> bool {
        let size = self.rows.len();
        let alike =
            [self.users.len(), self.columns.len(), self.timestamps.len()].iter().all(|one| *one == size);
        let (rows, end) = (self.rows, columns as i64);
        alike
            && all(rows.iter().zip(rows.iter().skip(1)), |(one, next)| one < next)
            && all(self.users.iter(), |user| key_of(*user).is_some())
            && all(self.columns.iter(), |one| (FILTERED..end).contains(one) && *one != UNSURE)
    }
}

/// Whether something holds for all, asked to the end in any case: that is faster than to stop at once.
fn all<T>(of: impl Iterator<Item = T>, holds: impl Fn(T) -> bool) -> bool {
    of.fold(true, |all, one| all & holds(one))
}

/// What became of events, in numbers of those from a row on.
#[derive(Default)]
struct Outcomes {
    counted: usize,
    bounded: usize,
    ignored: usize,
    filtered: usize,
    /// Places of the open timestamps that had events, and the first row where it was opened.
    touched: Vec<(usize, Option<i64>)>,
}

impl Tally {
    /// The place of an open timestamp, and whether it was opened.
    fn open_at(&mut self, timestamp: i64) -> (usize, bool) {
        let end = self.open.len();
        let place = *self.places.entry(timestamp).or_insert(end);
        if place == end {
            let (contributions, counts) = (Contributions::of(self.bound), vec![0; self.columns]);
            let in_columns = self.per_column.map(InColumns::of);
            self.open.push(Open { timestamp, contributions, in_columns, counts, touched_by: 0 });
        }
        (place, place == end)
    }

    /// Count events in the order of their rows, which is that in which the bounds let them count.
    fn count(&mut self, certain: &Events, judged: &Events, told: i64) -> Option<Outcomes> {
        self.takes += 1;
        let mut outcomes = Outcomes::default();
        let mut current: Option<(i64, usize)> = None;
        let mut one = |events: &Events, at: usize| {
            let (row, column, timestamp) = (events.rows[at], events.columns[at], events.timestamps[at]);
            let news = usize::from(row >= told);
            match column {
                IGNORED => outcomes.ignored += news,
                FILTERED => outcomes.filtered += news,
                _ => {
                    let place = match current {
                        Some((last, place)) if last == timestamp => place,
                        _ => {
                            let (place, opened) = self.open_at(timestamp);
                            if self.open[place].touched_by != self.takes {
                                self.open[place].touched_by = self.takes;
                                outcomes.touched.push((place, opened.then_some(row)));
                            }
                            current = Some((timestamp, place));
                            place
                        }
                    };
                    let open = &mut self.open[place];
                    if open.admit(key_of(events.users[at])?, column) {
                        open.counts[column as usize] += 1;
                        outcomes.counted += news;
                    } else {
                        outcomes.bounded += news;
                    }
                }
            }
            Some(())
        };
        let mut next = 0;
        for (at, row) in certain.rows.iter().enumerate() {
            while judged.rows.get(next).is_some_and(|other| other < row) {
                one(judged, next)?;
                next += 1;
            }
            one(certain, at)?;
        }
        (next..judged.rows.len()).try_for_each(|at| one(judged, at))?;
        Some(outcomes)
    }

    fn find(&self, timestamp: i64) -> PyResult<usize> {
        let place = self.places.get(&timestamp).copied();
        place.ok_or_else(|| PyIndexError::new_err(format!("timestamp {timestamp} is not open")))
    }
}

/// How many of the records from a row on were counted, bounded, ignored and filtered; and the timestamps that
/// had events, the number of users that each has now, and the first row if it was opened.
type Taken = ((usize, usize, usize, usize), Vec<(i64, usize, Option<i64>)>);
type Four<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>);

#[pymethods]
impl Tally {
    /// Columns have numbers below 2^32.
    #[new]
    #[pyo3(signature = (bound, columns, per_column=None))]
    fn new(bound: u64, columns: u32, per_column: Option<u32>) -> Self {
        let columns = columns as usize;
        Tally { bound, columns, per_column, open: Vec::new(), places: HashMap::new(), takes: 0 }
    }

    /// Count events in the order of their rows: those that are `certain`, and others that the rule has `judged`,
    /// int64 of rows, ascending, users, columns and timestamps. No row is in both.
    ///
    /// Records below row `told` are counted and not told. Raises ValueError, and counts nothing, if the events
    /// are not such.
    fn take(
        &mut self,
        py: Python,
        certain: Option<&Bound<Placed>>,
        judged: Option<Four>,
        told: i64,
    ) -> PyResult<Taken> {
        let judged: Option<[Cow<[i64]>; 4]> = match &judged {
            None => None,
            Some((rows, users, columns, timestamps)) => Some([
                integers(py, rows)?,
                integers(py, users)?,
                integers(py, columns)?,
                integers(py, timestamps)?,
            ]),
        };
        let certain = certain.map_or(Events::default(), |one| one.get().events());
        let judged = match &judged {
            None => Events::default(),
            Some([rows, users, columns, timestamps]) => Events { rows, users, columns, timestamps },
        };
        let sound = |events: &Events| events.are_sound(self.columns);
        let apart = judged.rows.iter().all(|row| certain.rows.binary_search(row).is_err());
        if !sound(&certain) || !sound(&judged) || !apart {
            return Err(PyValueError::new_err("these are no events of this stream, or not in order"));
        }
        let found = unlocked(py, || self.count(&certain, &judged, told))?;
        let found = found.ok_or_else(|| PyValueError::new_err("this is the number of no user"))?;
        let touched = found.touched.iter().map(|(place, row)| {
            let open = &self.open[*place];
            (open.timestamp, open.contributions.len(), *row)
        });
        Ok(((found.counted, found.bounded, found.ignored, found.filtered), touched.collect()))
    }

    /// int64 of the numbers of the users of an open timestamp. Raises IndexError if it is not open.
    fn users<'py>(&self, py: Python<'py>, timestamp: i64) -> PyResult<Bound<'py, PyBytes>> {
        let users = self.open[self.find(timestamp)?].contributions.numbers();
        Ok(PyBytes::new(py, bytemuck::cast_slice(&users)))
    }

    /// Let every user of an open timestamp have its new number, found at its old one; distinct ones stay
    /// distinct. Raises IndexError if it is not open, or if a user has none.
    fn renumber(&mut self, py: Python, timestamp: i64, new_numbers: &Bound<PyAny>) -> PyResult<()> {
        let place = self.find(timestamp)?;
        let open = &mut self.open[place];
        let in_columns = open.in_columns.as_ref().map(|one| one.renumbered(py, new_numbers)).transpose()?;
        open.contributions.renumber_all(py, new_numbers)?;
        open.in_columns = in_columns;
        Ok(())
    }

    /// int64 of the counts of an open timestamp by column. Raises IndexError if it is not open.
    fn counts<'py>(&self, py: Python<'py>, timestamp: i64) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, bytemuck::cast_slice(&self.open[self.find(timestamp)?].counts)))
    }

    /// The same; it is no longer open.
    fn close<'py>(&mut self, py: Python<'py>, timestamp: i64) -> PyResult<Bound<'py, PyBytes>> {
        let place = self.find(timestamp)?;
        self.places.remove(&timestamp);
        let closed = self.open.swap_remove(place);
        if let Some(moved) = self.open.get(place) {
            self.places.insert(moved.timestamp, place);
        }
        Ok(PyBytes::new(py, bytemuck::cast_slice(&closed.counts)))
    }
}

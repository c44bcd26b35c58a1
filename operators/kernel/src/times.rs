//! RFC 3339 times in their usual form. What is unusual, or no time, is `None`: the rule knows.

/// Of times that are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
}

impl Unit {
    /// Epoch milliseconds, cut off towards the past; None if that is too large.
    pub fn milliseconds(self, number: i64) -> Option<i64> {
        match self {
            Unit::Second => number.checked_mul(1000),
            Unit::Millisecond => Some(number),
            Unit::Microsecond => Some(number.div_euclid(1000)),
            Unit::Nanosecond => Some(number.div_euclid(1_000_000)),
        }
    }
}

/// What stands at fixed places of a time with a zone, `0` for a digit: the shortest one has 20 bytes.
const FORM: &[u8; 19] = b"0000-00-00T00:00:00";

/// Epoch milliseconds, fractions of a millisecond cut off, of a time in the years 2 to 9998.
pub fn parse(text: &[u8]) -> Option<i64> {
    let (moment, rest) = text.split_at_checked(FORM.len())?;
    let fits = moment.iter().zip(FORM).all(|(byte, form)| match form {
        b'0' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't' | b' '),
        _ => byte == form,
    });
    let [year, month, day, hour, minute, second] =
        [&moment[..4], &moment[5..7], &moment[8..10], &moment[11..13], &moment[14..16], &moment[17..19]]
            .map(number);
    let exists = (2..=9998).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !fits || !exists {
        return None;
    }
    let (thousandths, zone) = fraction(rest)?;
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute - offset(zone)?) * 60 + second;
    Some(seconds * 1000 + thousandths)
}

/// The number that digits write; of anything else, some number.
fn number(digits: &[u8]) -> i64 {
    digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit & 15))
}

fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some((b'.', rest)) = text.split_first() else { return Some((0, text)) };
    let size = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, zone) = rest.split_at(size);
    let mut first = *b"000";
    first.iter_mut().zip(digits).for_each(|(to, digit)| *to = *digit);
    (size > 0).then(|| (number(&first), zone))
}

/// Minutes east of Greenwich.
fn offset(zone: &[u8]) -> Option<i64> {
    match zone {
        b"Z" | b"z" => Some(0),
        [sign @ (b'+' | b'-'), a, b, b':', c, d] if [a, b, c, d].iter().all(|one| one.is_ascii_digit()) => {
            let (hours, minutes) = (number(&[*a, *b]), number(&[*c, *d]));
            let east = hours * 60 + minutes;
            (hours < 24 && minutes < 60).then_some(if *sign == b'-' { -east } else { east })
        }
        _ => None,
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from the first of January 1970 in the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let before = year - 1;
    let leaps = before / 4 - before / 100 + before / 400;
    let of_months: i64 = (1..month).map(|one| days_in(year, one)).sum();
    before * 365 + leaps - 719_162 + of_months + day - 1
}

//! Times as Kubernetes' `metav1.Time` and `MicroTime` read and write them.
//!
//! Times are shown in UTC, with no fraction or with exactly six digits. Errors have the texts of Go's `time`
//! package. The clock is the caller's; durations are `peerage_core::duration`'s.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use crate::field::quote;

/// Why a text is no time; the texts are Go's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TimeError {
    /// A part of the layout is not there.
    #[error(
        "parsing time {} as {}: cannot parse {} as {}",
        quote(text),
        quote(layout),
        quote(rest),
        quote(part)
    )]
    Part {
        /// The whole text.
        text: String,
        /// Go's layout.
        layout: &'static str,
        /// Where reading stopped.
        rest: String,
        /// The part of the layout that was wanted.
        part: &'static str,
    },
    /// A number is out of its range.
    #[error("parsing time {}: {what} out of range", quote(text))]
    Range {
        /// The whole text.
        text: String,
        /// Which number.
        what: &'static str,
    },
    /// Something follows the time.
    #[error("parsing time {}: extra text: {}", quote(text), quote(rest))]
    Extra {
        /// The whole text.
        text: String,
        /// What follows.
        rest: String,
    },
}

const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
const MICROS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// The time now, or any other, as `metav1.Time` shows it.
pub fn show(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time as `metav1.MicroTime` shows it.
pub fn show_micro(time: Timestamp) -> String {
    let micros = time.subsec_nanosecond().rem_euclid(1_000_000_000) / 1000;
    format!("{}.{micros:06}Z", time.strftime("%Y-%m-%dT%H:%M:%S"))
}

/// Reads what `metav1.Time` reads: RFC 3339 with any fraction.
pub fn parse(text: &str) -> Result<Timestamp, TimeError> {
    Reader::new(text, SECONDS).time(false)
}

/// Reads what `metav1.MicroTime` reads: RFC 3339 with exactly six digits of fraction.
pub fn parse_micro(text: &str) -> Result<Timestamp, TimeError> {
    Reader::new(text, MICROS).time(true)
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str, layout: &'static str) -> Reader<'a> {
        let rest = text;
        Reader { text, rest, layout }
    }

    fn time(mut self, micro: bool) -> Result<Timestamp, TimeError> {
        let year = self.digits(4, "2006")?;
        self.literal("-")?;
        let month = self.ranged("01", "month", 1..=12)?;
        self.literal("-")?;
        let day = self.ranged("02", "day", 1..=31)?;
        self.literal("T")?;
        let hour = self.ranged("15", "hour", 0..=23)?;
        self.literal(":")?;
        let minute = self.ranged("04", "minute", 0..=59)?;
        self.literal(":")?;
        let second = self.ranged("05", "second", 0..=59)?;
        let nanos = if micro {
            self.micros()?
        } else {
            self.fraction()
        };
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            let (text, rest) = (self.text.to_owned(), self.rest.to_owned());
            return Err(TimeError::Extra { text, rest });
        }
        let small = |number: i32| i8::try_from(number).unwrap_or(i8::MAX);
        let year = i16::try_from(year).unwrap_or(i16::MAX);
        let (month, day) = (small(month), small(day));
        let (hour, minute, second) = (small(hour), small(minute), small(second));
        let civil = DateTime::new(year, month, day, hour, minute, second, nanos);
        let civil = civil.map_err(|_| self.range("day"))?;
        let offset = Offset::from_seconds(offset).map_err(|_| self.range("time zone offset"))?;
        offset.to_timestamp(civil).map_err(|_| self.range("year"))
    }

    fn range(&self, what: &'static str) -> TimeError {
        let text = self.text.to_owned();
        TimeError::Range { text, what }
    }

    fn missing(&self, part: &'static str) -> TimeError {
        TimeError::Part {
            text: self.text.to_owned(),
            layout: self.layout,
            rest: self.rest.to_owned(),
            part,
        }
    }

    fn digits(&mut self, count: usize, part: &'static str) -> Result<i32, TimeError> {
        let head = self.rest.get(..count);
        let head = head.filter(|head| head.bytes().all(|b| b.is_ascii_digit()));
        let number = head.and_then(|head| head.parse().ok());
        let number = number.ok_or_else(|| self.missing(part))?;
        self.rest = &self.rest[count..];
        Ok(number)
    }

    fn ranged(
        &mut self,
        part: &'static str,
        what: &'static str,
        range: std::ops::RangeInclusive<i32>,
    ) -> Result<i32, TimeError> {
        let number = self.digits(2, part)?;
        if range.contains(&number) {
            Ok(number)
        } else {
            Err(self.range(what))
        }
    }

    fn literal(&mut self, part: &'static str) -> Result<(), TimeError> {
        self.rest = self
            .rest
            .strip_prefix(part)
            .ok_or_else(|| self.missing(part))?;
        Ok(())
    }

    /// An optional fraction, in billionths.
    fn fraction(&mut self) -> i32 {
        let Some(rest) = self.rest.strip_prefix(['.', ',']) else {
            return 0;
        };
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        if end == 0 {
            return 0;
        }
        self.rest = &rest[end..];
        billionths(&rest[..end])
    }

    /// A point and exactly six digits, in billionths.
    fn micros(&mut self) -> Result<i32, TimeError> {
        let rest = self.rest.strip_prefix(['.', ',']);
        let digits = rest.and_then(|rest| rest.get(..6));
        let digits = digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        let digits = digits.ok_or_else(|| self.missing(".000000"))?;
        self.rest = &self.rest[7..];
        Ok(billionths(digits))
    }

    /// `Z`, or hours and minutes from UTC, in seconds.
    fn offset(&mut self) -> Result<i32, TimeError> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let two = |text: &str| {
            let digits = text.bytes().all(|b| b.is_ascii_digit());
            if digits {
                text.parse::<i32>().ok()
            } else {
                None
            }
        };
        let read = |text: &str| {
            let sign = match text.get(..1)? {
                "+" => 1,
                "-" => -1,
                _ => return None,
            };
            let hours = two(text.get(1..3)?)?;
            let minutes = two(text.get(3..6)?.strip_prefix(':')?)?;
            Some(sign * (hours * 3600 + minutes * 60))
        };
        let offset = read(self.rest).ok_or_else(|| self.missing("Z07:00"))?;
        self.rest = &self.rest[6..];
        Ok(offset)
    }
}

fn billionths(digits: &str) -> i32 {
    let digits = digits.bytes().chain(std::iter::repeat(b'0')).take(9);
    digits.fold(0, |number, digit| number * 10 + i32::from(digit - b'0'))
}

#[cfg(test)]
mod tests;

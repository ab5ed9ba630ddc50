//! Durations as Go writes them (`10m`, `1h30m`, `1.5s`, `250ms`, `0`), since kube-apiserver's flags take those.
//!
//! Follows Go's `time.ParseDuration`, without negative values: no flag here has a use for them.

use std::time::Duration;

/// Why a text is not a duration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not a duration; write it like 10m, 1h30m, 1.5s or 250ms")]
pub struct DurationError {
    text: String,
}

/// Units by suffix, in nanoseconds. Longer suffixes come before their own prefixes.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 6e10),
    ("h", 3.6e12),
];

/// Longest duration taken: a hundred years. It keeps every sum with a clock's reading in range.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Reads a Go duration.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let wrong = || DurationError {
        text: text.to_owned(),
    };
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut nanoseconds = 0.0;
    while !rest.is_empty() {
        let (value, after) = number(rest).ok_or_else(wrong)?;
        let (unit, scale) = unit(after).ok_or_else(wrong)?;
        nanoseconds += value * scale;
        rest = &after[unit.len()..];
    }
    if nanoseconds > LONGEST.as_nanos() as f64 {
        return Err(wrong());
    }
    Ok(Duration::from_nanos(nanoseconds.round() as u64))
}

/// A decimal number at the start of `text`, and what follows it.
fn number(text: &str) -> Option<(f64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

fn unit(text: &str) -> Option<(&'static str, f64)> {
    let end = text
        .find(|c: char| c.is_ascii_digit() || c == '.')
        .unwrap_or(text.len());
    UNITS
        .into_iter()
        .find(|(suffix, _)| *suffix == &text[..end])
}

/// Writes a duration the way [`parse`] reads it, in the largest units that are exact.
pub fn format(duration: Duration) -> String {
    let millis = duration.as_millis();
    if !millis.is_multiple_of(1000) {
        return format!("{millis}ms");
    }
    let seconds = duration.as_secs();
    if seconds == 0 {
        return "0s".to_owned();
    }
    let parts = [
        (seconds / 3600, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ];
    parts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, unit)| format!("{count}{unit}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_read() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1500),
            ("+250ms", 250),
            ("1m0s", 60_000),
            (".5s", 500),
            ("1h1ms", 3_600_001),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(parse("1us1µs1ns"), Ok(Duration::from_nanos(2001)));
    }

    #[test]
    fn what_go_refuses_is_refused() {
        for text in [
            "",
            "10",
            "m",
            "-1s",
            "1d",
            "1 s",
            "1.2.3s",
            ".",
            "10m5",
            "999999999h",
            "1e3s",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_reads_back_the_same() {
        for text in ["0s", "10m", "1h30m", "250ms", "2h", "59s", "1h1s"] {
            let duration = parse(text).expect(text);
            assert_eq!(format(duration), text);
        }
    }
}

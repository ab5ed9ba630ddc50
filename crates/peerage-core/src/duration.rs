//! Durations in Go's notation (`1h2m3.5s`), as `?timeout=`, flags and fields of type `Duration` have them.
//!
//! The errors are Go's, since a client that sends a bad one is shown them.
//!
//! Invariant: what [`show`] writes, [`parse_signed`] reads back as the same number.

use std::fmt::Write;
use std::time::Duration;

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// It does not follow the notation, or is longer than 292 years.
    #[error("time: invalid duration {}", quote(.0))]
    Invalid(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {}", quote(.0))]
    MissingUnit(String),
    /// A unit that there is not.
    #[error("time: unknown unit {} in duration {}", quote(.unit), quote(.text))]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

/// Reads a duration. One below zero is well-formed but `None`: nothing here can be told to take less than no time.
///
/// # Errors
/// What Go's parser refuses.
pub fn parse(text: &str) -> Result<Option<Duration>, DurationError> {
    let nanoseconds = parse_signed(text)?;
    Ok(u64::try_from(nanoseconds).ok().map(Duration::from_nanos))
}

/// Reads a duration as its nanoseconds.
///
/// # Errors
/// What Go's parser refuses.
pub fn parse_signed(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if unsigned.is_empty() {
        return Err(invalid());
    }
    let mut rest = if unsigned == "0" { "" } else { unsigned };
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (part, after) = part(rest, text)?;
        total = total.checked_add(part).ok_or_else(invalid)?;
        rest = after;
    }
    let signed = match text.starts_with('-') {
        true => 0_i64.checked_sub_unsigned(total),
        false => i64::try_from(total).ok(),
    };
    signed.ok_or_else(invalid)
}

/// The nanoseconds of a number with its unit at the start of `rest`, and what follows; `text` is for the errors.
fn part<'a>(rest: &'a str, text: &str) -> Result<(u64, &'a str), DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (number, after) = split(rest, |c| c.is_ascii_digit());
    let (fraction, after) = match after.strip_prefix('.') {
        Some(after) => split(after, |c| c.is_ascii_digit()),
        None => ("", after),
    };
    if number.is_empty() && fraction.is_empty() {
        return Err(invalid());
    }
    let (name, after) = split(after, |c| c != '.' && !c.is_ascii_digit());
    let unit = unit(name).ok_or_else(|| match name {
        "" => DurationError::MissingUnit(text.to_owned()),
        _ => DurationError::UnknownUnit {
            unit: name.to_owned(),
            text: text.to_owned(),
        },
    })?;
    let part = nanoseconds(number, fraction, unit).ok_or_else(invalid)?;
    Ok((part, after))
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

fn nanoseconds(number: &str, fraction: &str, unit: u64) -> Option<u64> {
    let whole = if number.is_empty() {
        0
    } else {
        number.parse::<u64>().ok()?.checked_mul(unit)?
    };
    // Digits beyond the nanosecond of an hour cannot matter.
    let fraction = &fraction[..fraction.len().min(18)];
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let part = if fraction.is_empty() {
        0
    } else {
        fraction.parse::<u128>().ok()? * u128::from(unit) / scale
    };
    whole.checked_add(u64::try_from(part).ok()?)
}

fn unit(name: &str) -> Option<u64> {
    Some(match name {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// Nanoseconds as Go writes them: in the largest units, without zeros at the end.
#[must_use]
pub fn show(nanos: i64) -> String {
    let mut out = String::new();
    let positive = nanos.unsigned_abs();
    if nanos < 0 {
        out.push('-');
    }
    if positive < 1_000_000_000 {
        let (unit, size) = match positive {
            0 => return "0s".to_owned(),
            1..1_000 => ("ns", 1),
            1_000..1_000_000 => ("µs", 1_000),
            _ => ("ms", 1_000_000),
        };
        push_decimal(&mut out, positive, size);
        out.push_str(unit);
        return out;
    }
    let (hours, rest) = (positive / 3_600_000_000_000, positive % 3_600_000_000_000);
    let (minutes, rest) = (rest / 60_000_000_000, rest % 60_000_000_000);
    // Writing to a String cannot fail.
    if hours > 0 {
        let _ = write!(out, "{hours}h");
    }
    if hours > 0 || minutes > 0 {
        let _ = write!(out, "{minutes}m");
    }
    push_decimal(&mut out, rest, 1_000_000_000);
    out.push('s');
    out
}

/// `number / size` without trailing zeros.
fn push_decimal(out: &mut String, number: u64, size: u64) {
    out.push_str(&(number / size).to_string());
    let rest = number % size;
    if rest > 0 {
        let width = size.ilog10() as usize;
        let digits = format!("{rest:0width$}");
        out.push('.');
        out.push_str(digits.trim_end_matches('0'));
    }
}

/// Quotes as Go's time package does: what is not printable ASCII becomes the escapes of its bytes.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        // Writing to a String cannot fail.
        let _ = match byte {
            b'"' | b'\\' => write!(out, "\\{}", char::from(byte)),
            b' '..=0x7f => write!(out, "{}", char::from(byte)),
            _ => write!(out, "\\x{byte:02x}"),
        };
    }
    out.push('"');
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, seconds) in [
            ("0", 0.0),
            ("-0", 0.0),
            ("5s", 5.0),
            ("+5s", 5.0),
            ("1h2m3.5s", 3723.5),
            ("1.5h", 5400.0),
            ("300ms", 0.3),
            (".5s", 0.5),
            ("5.s", 5.0),
            ("1us2µs3μs4ns", 6.004e-6),
            ("0.000000000000000000000000000001s", 0.0),
        ] {
            assert_eq!(
                parse(text),
                Ok(Some(Duration::from_secs_f64(seconds))),
                "{text:?}"
            );
        }
        assert_eq!(parse("-5s"), Ok(None));
        assert_eq!(
            parse("9223372036854775807ns"),
            Ok(Some(Duration::from_nanos(i64::MAX.unsigned_abs())))
        );
        assert_eq!(parse("-9223372036854775808ns"), Ok(None));
    }

    #[test]
    fn errors_read_as_gos() {
        for (text, expected) in [
            ("", r#"time: invalid duration """#),
            ("-", r#"time: invalid duration "-""#),
            ("zz", r#"time: invalid duration "zz""#),
            ("5", r#"time: missing unit in duration "5""#),
            ("5s5", r#"time: missing unit in duration "5s5""#),
            ("1d", r#"time: unknown unit "d" in duration "1d""#),
            ("5 s", r#"time: unknown unit " s" in duration "5 s""#),
            (".s", r#"time: invalid duration ".s""#),
            ("é\"\n", r#"time: invalid duration "\xc3\xa9\"\x0a""#),
            (
                "9223372036854775808ns",
                r#"time: invalid duration "9223372036854775808ns""#,
            ),
            ("3000000h", r#"time: invalid duration "3000000h""#),
            (
                "99999999999999999999s",
                r#"time: invalid duration "99999999999999999999s""#,
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_duration_has_one_form() {
        for (text, shown) in [
            ("0", "0s"),
            ("90m", "1h30m0s"),
            ("-1.50s", "-1.5s"),
            ("1500us", "1.5ms"),
            ("10m", "10m0s"),
        ] {
            assert_eq!(show(parse_signed(text).unwrap()), shown);
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(nanoseconds: i64) {
            prop_assert_eq!(parse_signed(&show(nanoseconds)), Ok(nanoseconds));
        }

        #[test]
        fn no_text_panics(text in "[-+]?([0-9.]{0,25}[a-zµ é]{0,3}){0,4}") {
            let _ = parse(&text);
        }
    }
}

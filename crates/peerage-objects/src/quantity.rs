//! Quantities: `100m`, `1.5Gi`, `2e3`, and their one canonical form.
//!
//! Follows Kubernetes' `resource.Quantity`: a value finer than a billionth is rounded away from zero, a binary one
//! beyond 64 bits is capped, and the suffix is the largest that leaves no fraction.

use std::cmp::Ordering;
use std::fmt;

/// A quantity: billionths, and the family of suffixes it was written with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// The family of suffixes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    /// `e3`
    DecimalExponent,
    /// `k`, `M`, `m`
    Decimal,
    /// `Ki`, `Mi`
    Binary,
}

/// Why a text is no quantity; the texts are Kubernetes'.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QuantityError {
    /// It does not have the shape of one.
    #[error(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    /// The number is none.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// The suffix is none.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// Billionths in one.
const NANO: i128 = 1_000_000_000;
/// The exponents of ten that have a suffix.
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
/// The suffixes of the powers of 1024, from the first.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl Quantity {
    /// Reads a quantity.
    ///
    /// Differs: values from 10^29 on, which Kubernetes counts in arbitrary precision, are capped there.
    pub fn parse(text: &str) -> Result<Quantity, QuantityError> {
        let parts = Parts::cut(text)?;
        let (factor, format) = suffix(parts.suffix)?;
        let nanos = scale(parts, factor);
        let mut quantity = Quantity { nanos, format };
        if format == Format::Binary {
            let cap = i128::from(i64::MAX) * NANO;
            quantity.nanos = quantity.nanos.clamp(-cap, cap);
            if quantity.nanos.unsigned_abs() < NANO.unsigned_abs() {
                quantity.format = Format::Decimal;
            }
        }
        Ok(quantity)
    }

    /// The same rounded away from zero to whole thousandths, as Kubernetes does with resource lists.
    #[must_use]
    pub fn rounded_to_milli(self) -> Quantity {
        Quantity {
            nanos: round_away(self.nanos, NANO / 1000) * (NANO / 1000),
            ..self
        }
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    fn fmt_binary(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut number = self.nanos / NANO;
        let mut power = 0;
        while number % 1024 == 0 && power < BINARY.len() {
            number /= 1024;
            power += 1;
        }
        let suffix = power.checked_sub(1).map_or("", |at| BINARY[at]);
        write!(f, "{number}{suffix}")
    }

    fn fmt_decimal(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut number, mut exponent) = (self.nanos, -9);
        let largest = if self.format == Format::DecimalExponent {
            i32::MAX
        } else {
            18
        };
        while number % 1000 == 0 && exponent < largest {
            number /= 1000;
            exponent += 3;
        }
        write!(f, "{number}")?;
        match self.format {
            Format::DecimalExponent if exponent == 0 => Ok(()),
            Format::DecimalExponent => write!(f, "e{exponent}"),
            _ => {
                let found = DECIMAL.iter().find(|(_, e)| *e == exponent);
                f.write_str(found.map_or("", |(suffix, _)| suffix))
            }
        }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        self.nanos.partial_cmp(&other.nanos)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let small = self.nanos.unsigned_abs() < (1024 * NANO).unsigned_abs();
        if self.nanos == 0 {
            f.write_str("0")
        } else if self.format == Format::Binary && !small && self.nanos % NANO == 0 {
            self.fmt_binary(f)
        } else {
            self.fmt_decimal(f)
        }
    }
}

/// The parts of a quantity's text.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn cut(text: &'a str) -> Result<Parts<'a>, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let (negative, rest) = match text.strip_prefix(['-', '+']) {
            Some(rest) => (text.starts_with('-'), rest),
            None => (false, text),
        };
        let (whole, rest) = take(rest, |c| c.is_ascii_digit());
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(rest) => take(rest, |c| c.is_ascii_digit()),
            None => ("", rest),
        };
        let (_, end) = take(rest, |c| "eEinumkKMGTP".contains(c));
        let end = end.strip_prefix(['-', '+']).unwrap_or(end);
        if !end.bytes().all(|b| b.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        if whole.is_empty() && fraction.is_empty() {
            return Err(QuantityError::Numeric);
        }
        Ok(Parts {
            negative,
            whole,
            fraction,
            suffix: rest,
        })
    }
}

fn take(text: &str, wanted: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|c| !wanted(c)).unwrap_or(text.len());
    text.split_at(end)
}

/// What a suffix multiplies with.
#[derive(Clone, Copy)]
enum Factor {
    Ten(i32),
    Two(u32),
}

fn suffix(text: &str) -> Result<(Factor, Format), QuantityError> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(suffix, _)| *suffix == text) {
        return Ok((Factor::Ten(*exponent), Format::Decimal));
    }
    if let Some(at) = BINARY.iter().position(|suffix| *suffix == text) {
        let power = u32::try_from(at + 1).unwrap_or_default();
        return Ok((Factor::Two(10 * power), Format::Binary));
    }
    let exponent = text
        .strip_prefix(['e', 'E'])
        .and_then(|digits| digits.parse().ok());
    match exponent {
        Some(exponent) => Ok((Factor::Ten(exponent), Format::DecimalExponent)),
        None => Err(QuantityError::Suffix),
    }
}

/// The value in billionths, rounded away from zero, capped at the limits of the type.
fn scale(parts: Parts<'_>, factor: Factor) -> i128 {
    let digits = parts.whole.bytes().chain(parts.fraction.bytes());
    let mut mantissa: i128 = 0;
    // Digits beyond the 28th are far below a billionth of the value; they only say that there is more.
    let (mut kept, mut more) = (0, false);
    let mut dropped = 0;
    for digit in digits {
        if kept < 28 {
            mantissa = mantissa * 10 + i128::from(digit - b'0');
            kept += usize::from(mantissa != 0);
        } else {
            more |= digit != b'0';
            dropped += 1;
        }
    }
    let (ten, two) = match factor {
        Factor::Ten(exponent) => (exponent, 0),
        Factor::Two(exponent) => (0, exponent),
    };
    let fraction = i32::try_from(parts.fraction.len()).unwrap_or(i32::MAX);
    let exponent = ten
        .saturating_sub(fraction)
        .saturating_add(dropped)
        .saturating_add(9);
    let mut nanos = mantissa.saturating_mul(1i128 << two);
    nanos = match (nanos, u32::try_from(exponent)) {
        (0, _) => 0,
        (_, Ok(up)) => 10i128
            .checked_pow(up)
            .map_or(i128::MAX, |p| nanos.saturating_mul(p)),
        (_, Err(_)) => match 10i128.checked_pow(exponent.unsigned_abs()) {
            Some(power) => round_away(nanos, power),
            None => 1,
        },
    };
    nanos = if more && exponent < 0 {
        nanos.saturating_add(1)
    } else {
        nanos
    };
    // Kubernetes has no such limit; it keeps sums of quantities within the type.
    let limit = 100_000_000_000_000_000_000_000_000_000 * NANO;
    nanos = nanos.min(limit);
    if parts.negative { -nanos } else { nanos }
}

fn round_away(number: i128, divisor: i128) -> i128 {
    let (quotient, rest) = (number / divisor, number % divisor);
    quotient + rest.signum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_have_one_canonical_form() {
        let cases = [
            ("0", "0"),
            ("0Mi", "0"),
            ("-0", "0"),
            ("1", "1"),
            ("+1", "1"),
            ("-1", "-1"),
            ("0.5", "500m"),
            ("0.25", "250m"),
            ("1.50", "1500m"),
            (".5", "500m"),
            ("1.", "1"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1000M", "1G"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("4096Mi", "4Gi"),
            ("1000Ki", "1000Ki"),
            ("512", "512"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("1.5", "1500m"),
            ("0.1Gi", "107374182400m"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("12e1", "120"),
            ("1e0", "1"),
            ("100n", "100n"),
            ("0.1n", "1n"),
            ("0.0001", "100u"),
            ("9223372036854775807", "9223372036854775807"),
            ("9Ei", "9223372036854775807"),
            ("1E", "1E"),
        ];
        for (text, canonical) in cases {
            let quantity = Quantity::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(quantity.to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused_in_kubernetes_words() {
        for (text, error) in [
            ("many", QuantityError::Format),
            ("1gb", QuantityError::Format),
            ("", QuantityError::Format),
            ("true", QuantityError::Format),
            ("1 ", QuantityError::Format),
            ("1kk", QuantityError::Suffix),
            ("1e", QuantityError::Suffix),
            ("m", QuantityError::Numeric),
        ] {
            assert_eq!(Quantity::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn resources_are_rounded_up_to_thousandths() {
        let rounded = |text: &str| {
            Quantity::parse(text)
                .unwrap()
                .rounded_to_milli()
                .to_string()
        };
        assert_eq!(rounded("0.0001"), "1m");
        assert_eq!(rounded("1.2345"), "1235m");
        assert_eq!(rounded("2"), "2");
    }

    proptest! {
        #[test]
        fn the_canonical_form_reads_as_the_same_quantity(
            text in "[-+]?[0-9]{1,9}(\\.[0-9]{0,9})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e[0-9]|e-[0-9]|)"
        ) {
            let quantity = Quantity::parse(&text).unwrap();
            let again = Quantity::parse(&quantity.to_string()).unwrap();
            prop_assert_eq!(again.nanos, quantity.nanos);
            prop_assert_eq!(again.to_string(), quantity.to_string());
        }

        #[test]
        fn any_text_is_read_or_refused_without_a_panic(text in "[-+0-9.eEinumkKMGTPx]{0,50}") {
            let _ = Quantity::parse(&text).map(|q| (q.to_string(), q.rounded_to_milli().to_string()));
        }
    }
}

//! Go's duration syntax, as the `timeout` query parameter has it: `1h2m3.5s`.

use std::time::Duration;

/// Reads a duration; `None` for what Go's parser refuses, and for what is negative.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().ok()?;
        let tail = &rest[digits..];
        let end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        seconds += number * unit(&tail[..end])?;
        rest = &tail[end..];
    }
    Duration::try_from_secs_f64(seconds).ok()
}

fn unit(name: &str) -> Option<f64> {
    Some(match name {
        "ns" => 1e-9,
        "us" | "µs" | "μs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let rows: &[(&str, Option<f64>)] = &[
            ("5s", Some(5.0)),
            ("1h2m3.5s", Some(3723.5)),
            ("1.5h", Some(5400.0)),
            ("300ms", Some(0.3)),
            ("+1s", Some(1.0)),
            ("0", Some(0.0)),
            (".5s", Some(0.5)),
            ("5", None),
            ("", None),
            ("zz", None),
            ("-5s", None),
            ("5s5", None),
            ("5 s", None),
            (".s", None),
            ("1d", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse(text).map(|d| d.as_secs_f64()), *expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            let _ = parse(&text);
        }
    }
}

//! `Warning` headers (RFC 7234, as Kubernetes uses it: code 299, agent `-`), collected while a request is handled.

use std::sync::{Mutex, PoisonError};

use http::HeaderMap;
use http::header::{HeaderValue, WARNING};

/// Bytes of warnings in one answer. kube-apiserver cuts them off there as well.
const MAX_BYTES: usize = 16 << 10;

/// The warnings of one request, in order, each once.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    /// Adds a warning unless it is there already.
    pub(crate) fn add(&self, text: impl Into<String>) {
        let text = text.into();
        let mut warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !text.is_empty() && !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    /// Writes the headers.
    pub(crate) fn apply(&self, headers: &mut HeaderMap) {
        let warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = 0;
        for text in warnings.iter() {
            let value = format!("299 - {}", quoted(text));
            bytes += value.len();
            if bytes > MAX_BYTES {
                return;
            }
            if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
                headers.append(WARNING, value);
            }
        }
    }
}

/// A quoted-string: backslashes before `"` and `\`, control characters left out.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_warning_is_a_header_of_its_own_and_said_once() {
        let warnings = Warnings::default();
        warnings.add("unknown field \"spec.foo\"");
        warnings.add("b");
        warnings.add("b");
        let mut headers = HeaderMap::new();
        warnings.apply(&mut headers);
        let values: Vec<_> = headers.get_all(WARNING).iter().collect();
        assert_eq!(
            values,
            ["299 - \"unknown field \\\"spec.foo\\\"\"", "299 - \"b\""]
        );
    }
}

//! The field selector: `metadata.name=a,spec.nodeName!=b`, with backslashes before `,`, `=` and `\` in values.
//!
//! Follows Kubernetes' `fields.ParseSelector`: terms are sorted, an absent field is the empty text.

use std::fmt;

/// What a selector demands of fields: all of its terms.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

/// One demand on one field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldTerm {
    /// The field: `metadata.name`.
    pub field: String,
    /// The value.
    pub value: String,
    /// Whether the field must *not* have the value.
    pub negated: bool,
}

/// Why a field selector cannot be read; the text is Kubernetes'.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FieldSelectorError {
    /// A term has no operator.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term {
        /// The whole selector.
        selector: String,
        /// The term.
        term: String,
    },
    /// A backslash before what needs none, or at the end.
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    /// A `=` in a value without a backslash. Kubernetes shows the number of the character.
    #[error("invalid field selector: unescaped character in value: {}", u32::from(*.0))]
    Unescaped(char),
}

impl FieldSelector {
    /// Matches every object.
    pub fn everything() -> FieldSelector {
        FieldSelector::default()
    }

    /// Reads the grammar of `?fieldSelector=`.
    pub fn parse(text: &str) -> Result<FieldSelector, FieldSelectorError> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((field, negated, value)) = split_term(part) else {
                return Err(FieldSelectorError::Term {
                    selector: text.to_owned(),
                    term: part.to_owned(),
                });
            };
            let value = unescape(value)?;
            // Kubernetes drops a term that says nothing at all.
            if field.is_empty() && value.is_empty() {
                continue;
            }
            let field = field.to_owned();
            terms.push(FieldTerm {
                field,
                value,
                negated,
            });
        }
        Ok(FieldSelector { terms })
    }

    /// The selector that demands one value of one field.
    pub fn one(field: impl Into<String>, value: impl Into<String>) -> FieldSelector {
        let term = FieldTerm {
            field: field.into(),
            value: value.into(),
            negated: false,
        };
        FieldSelector { terms: vec![term] }
    }

    /// Its terms.
    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether an object with these fields matches; a field that `get` does not know is the empty text.
    pub fn matches<'o>(&self, mut get: impl FnMut(&str) -> Option<&'o str>) -> bool {
        self.terms.iter().all(|term| {
            let value = get(&term.field).unwrap_or_default();
            (value == term.value) != term.negated
        })
    }

    /// The one value that a field must have, if the selector demands one.
    pub fn exact(&self, field: &str) -> Option<&str> {
        let term = self.terms.iter().find(|t| !t.negated && t.field == field)?;
        Some(&term.value)
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, term) in self.terms.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let operator = if term.negated { "!=" } else { "=" };
            write!(f, "{comma}{}{operator}{}", term.field, escape(&term.value))?;
        }
        Ok(())
    }
}

/// Cuts at commas that have no backslash before them.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Cuts at the first operator: the field, whether it is negated, the value.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    for (at, _) in term.char_indices() {
        let rest = &term[at..];
        for (operator, negated) in [("!=", true), ("==", false), ("=", false)] {
            if let Some(value) = rest.strip_prefix(operator) {
                return Some((&term[..at], negated, value));
            }
        }
    }
    None
}

fn unescape(value: &str) -> Result<String, FieldSelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut escaped = false;
    for c in value.chars() {
        match c {
            '\\' | ',' | '=' if escaped => {
                out.push(c);
                escaped = false;
            }
            _ if escaped => return Err(FieldSelectorError::Escape(format!("\\{c}"))),
            '\\' => escaped = true,
            ',' | '=' => return Err(FieldSelectorError::Unescaped(c)),
            _ => out.push(c),
        }
    }
    if escaped {
        return Err(FieldSelectorError::Escape("\\".to_owned()));
    }
    Ok(out)
}

fn escape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terms_compare_fields_with_text() {
        let fields = |name: &str| match name {
            "metadata.name" => Some("c1"),
            "metadata.namespace" => Some("lists"),
            _ => None,
        };
        let cases = [
            ("", true),
            ("=", true),
            ("metadata.name=c1", true),
            ("metadata.name==c1", true),
            ("metadata.name!=c1", false),
            ("metadata.name=", false),
            ("spec.nodeName=", true),
            ("spec.nodeName!=", false),
            ("metadata.name=c1,metadata.namespace=lists", true),
            ("metadata.name=c1,metadata.name=c2", false),
            ("metadata.name=c1,,", true),
        ];
        for (text, matches) in cases {
            let selector = FieldSelector::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(selector.matches(fields), matches, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_kubernetes_words() {
        let cases = [
            (
                "metadata.name",
                "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
            ),
            (
                "metadata.name in (c1)",
                "invalid selector: 'metadata.name in (c1)'; can't understand 'metadata.name in (c1)'",
            ),
            (
                "a=b=c",
                "invalid field selector: unescaped character in value: 61",
            ),
            (
                "a=\\x",
                "invalid field selector: invalid escape sequence: \\x",
            ),
            (
                "a=b\\",
                "invalid field selector: invalid escape sequence: \\",
            ),
        ];
        for (text, error) in cases {
            assert_eq!(FieldSelector::parse(text).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn the_exact_value_of_a_field_is_found() {
        let selector = FieldSelector::parse("metadata.name!=a,metadata.name=b").unwrap();
        assert_eq!(selector.exact("metadata.name"), Some("b"));
        assert_eq!(selector.exact("metadata.namespace"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_a_panic(text in "\\PC{0,40}") {
            let _ = FieldSelector::parse(&text);
        }

        #[test]
        fn what_is_printed_reads_the_same(value in "[ab,=\\\\é]{0,8}", negated: bool) {
            let field = "spec.x".to_owned();
            let selector = FieldSelector { terms: vec![FieldTerm { field, value, negated }] };
            prop_assert_eq!(FieldSelector::parse(&selector.to_string()).unwrap(), selector);
        }
    }
}

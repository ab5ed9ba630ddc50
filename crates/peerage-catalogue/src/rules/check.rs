//! The kinds of checks: those of Kubernetes' own declarative validation tags.

use peerage_objects::names;
use serde_json::Value;

use super::condition::Condition;
use super::path::FieldPath;

/// One check of a field.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The field, from the type that the check belongs to; none is the object itself.
    pub path: Option<FieldPath>,
    /// What is checked.
    pub kind: CheckKind,
    /// When.
    pub when: Condition,
}

/// What is checked.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckKind {
    /// The field must be there and not be empty.
    Required(String),
    /// The number must be there and not be 0.
    NonZero,
    /// The text must be one of these.
    Enum(Vec<String>),
    /// The text must have this form.
    Format(Format),
    /// The number must be at least that.
    Minimum(i64),
    /// The number must be at most that.
    Maximum(i64),
    /// The number must be between these, both allowed.
    Range(i64, i64),
    /// The number must be more than 0.
    Positive,
    /// The text must have at most that many bytes.
    MaxLength(usize),
    /// The list must have at most that many elements.
    MaxItems(usize),
    /// No two elements may have the same value in this field; an empty name is the element itself.
    Unique(String),
    /// Of these fields of the object itself, exactly one may be there.
    OneOf(Vec<String>, String),
    /// Of these fields of the object itself, at most one may be there.
    AtMostOneOf(Vec<String>, String),
    /// The value must not change.
    Immutable,
    /// The field must not be there.
    Forbidden(String),
}

/// A form of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// An RFC 1123 label.
    DnsLabel,
    /// An RFC 1123 subdomain.
    DnsSubdomain,
    /// An RFC 1035 label.
    Dns1035Label,
    /// A label key.
    QualifiedName,
    /// A key of a ConfigMap or Secret.
    ConfigKey,
    /// A segment of a path.
    PathSegment,
    /// An IP address.
    Ip,
    /// The name of a port (RFC 6335).
    PortName,
    /// An absolute path.
    AbsolutePath,
}

impl Format {
    /// Reads the name of a format.
    pub fn read(name: &str) -> Option<Format> {
        Some(match name {
            "dns-label" => Format::DnsLabel,
            "dns-subdomain" => Format::DnsSubdomain,
            "dns-1035-label" => Format::Dns1035Label,
            "qualified-name" => Format::QualifiedName,
            "config-key" => Format::ConfigKey,
            "path-segment" => Format::PathSegment,
            "ip" => Format::Ip,
            "port-name" => Format::PortName,
            "absolute-path" => Format::AbsolutePath,
            _ => return None,
        })
    }

    /// The texts of what is wrong with a value.
    pub fn check(self, text: &str) -> Vec<String> {
        match self {
            Format::DnsLabel => names::dns1123_label(text),
            Format::DnsSubdomain => names::dns1123_subdomain(text),
            Format::Dns1035Label => names::dns1035_label(text),
            Format::QualifiedName => names::qualified_name(text),
            Format::ConfigKey => names::config_key(text),
            Format::PathSegment => names::path_segment(text, false),
            Format::Ip if text.parse::<std::net::IpAddr>().is_ok() => Vec::new(),
            Format::Ip => {
                vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()]
            }
            Format::PortName => port_name(text),
            Format::AbsolutePath if text.starts_with('/') => Vec::new(),
            Format::AbsolutePath => vec!["must be an absolute path".to_owned()],
        }
    }
}

/// The longest name of a port.
const PORT_NAME_MAX: usize = 15;

/// What is wrong with the name of a port.
fn port_name(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > PORT_NAME_MAX {
        wrong.push(format!("must be no more than {PORT_NAME_MAX} characters"));
    }
    let rules: [(bool, &str); 4] = [
        (
            text.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (
            text.bytes().any(|b| b.is_ascii_alphabetic()),
            "must contain at least one letter (a-z)",
        ),
        (!text.contains("--"), "must not contain consecutive hyphens"),
        (
            !text.starts_with('-') && !text.ends_with('-'),
            "must not begin or end with a hyphen",
        ),
    ];
    wrong.extend(
        rules
            .iter()
            .filter(|(good, _)| !good)
            .map(|(_, text)| (*text).to_owned()),
    );
    wrong
}

impl CheckKind {
    /// Reads a check from its words; none if they are none.
    pub fn read(text: &str) -> Option<CheckKind> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let number = || rest.parse().ok();
        let size = || rest.parse().ok();
        let words = || {
            rest.split(' ')
                .filter(|w| !w.is_empty())
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        Some(match word {
            "required" => CheckKind::Required(rest.to_owned()),
            "non-zero" if rest.is_empty() => CheckKind::NonZero,
            "enum" if !rest.is_empty() => CheckKind::Enum(words()),
            "format" => CheckKind::Format(Format::read(rest)?),
            "minimum" => CheckKind::Minimum(number()?),
            "maximum" => CheckKind::Maximum(number()?),
            "max-length" => CheckKind::MaxLength(size()?),
            "max-items" => CheckKind::MaxItems(size()?),
            "unique" => CheckKind::Unique(rest.to_owned()),
            "range" => {
                let (low, high) = rest.split_once(' ')?;
                CheckKind::Range(low.parse().ok()?, high.parse().ok()?)
            }
            "positive" if rest.is_empty() => CheckKind::Positive,
            "one-of" => {
                let (names, detail) = names_and_detail(rest)?;
                CheckKind::OneOf(names, detail)
            }
            "at-most-one-of" => {
                let (names, detail) = names_and_detail(rest)?;
                CheckKind::AtMostOneOf(names, detail)
            }
            "immutable" if rest.is_empty() => CheckKind::Immutable,
            "forbidden" => CheckKind::Forbidden(rest.to_owned()),
            _ => return None,
        })
    }
}

/// `a b c : detail`.
fn names_and_detail(text: &str) -> Option<(Vec<String>, String)> {
    let (names, detail) = text.split_once(" : ")?;
    Some((
        names.split(' ').map(str::to_owned).collect(),
        detail.to_owned(),
    ))
}

/// Whether Go would call the value the zero one.
pub(super) fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(_) => false,
    }
}

//! The kinds of checks: those of Kubernetes' own declarative validation tags.

use peerage_objects::names;
use serde_json::Value;

use super::condition::Condition;
use super::path::FieldPath;

/// One check of a field.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The field, from the type that the check belongs to.
    pub path: FieldPath,
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
    /// The text must be one of these.
    Enum(Vec<String>),
    /// The text must have this form.
    Format(Format),
    /// The number must be at least that.
    Minimum(i64),
    /// The number must be at most that.
    Maximum(i64),
    /// The text must have at most that many bytes.
    MaxLength(usize),
    /// The list must have at most that many elements.
    MaxItems(usize),
    /// No two elements may have the same value in this field; an empty name is the element itself.
    Unique(String),
    /// Of these fields, exactly one (or, if the flag is false, at most one) may be there.
    Union(Vec<String>, bool),
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
        }
    }
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
            "enum" if !rest.is_empty() => CheckKind::Enum(words()),
            "format" => CheckKind::Format(Format::read(rest)?),
            "minimum" => CheckKind::Minimum(number()?),
            "maximum" => CheckKind::Maximum(number()?),
            "max-length" => CheckKind::MaxLength(size()?),
            "max-items" => CheckKind::MaxItems(size()?),
            "unique" => CheckKind::Unique(rest.to_owned()),
            "one-of" if !rest.is_empty() => CheckKind::Union(words(), true),
            "at-most-one-of" if !rest.is_empty() => CheckKind::Union(words(), false),
            "immutable" if rest.is_empty() => CheckKind::Immutable,
            "forbidden" => CheckKind::Forbidden(rest.to_owned()),
            _ => return None,
        })
    }
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

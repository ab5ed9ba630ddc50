//! What names, label keys and label values may look like, with Kubernetes' texts for what they may not.
//!
//! Each check returns the texts of all rules that are broken; none means that the name is good. No regular
//! expression is run: the shapes are simple enough to walk.

/// The longest label value, and the longest name part of a key.
const LABEL_MAX: usize = 63;
/// The longest RFC 1123 subdomain.
const SUBDOMAIN_MAX: usize = 253;

const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const KEY: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// The rule that the names of a kind follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum NameRule {
    /// An RFC 1123 subdomain: most kinds.
    #[default]
    Dns1123Subdomain,
    /// An RFC 1123 label: namespaces, services.
    Dns1123Label,
    /// An RFC 1035 label.
    Dns1035Label,
    /// Anything that can be one segment of a path: RBAC and a few others.
    PathSegment,
    /// Nothing is checked.
    Anything,
}

impl NameRule {
    /// The rules that a name breaks.
    pub fn check(self, name: &str) -> Vec<String> {
        match self {
            NameRule::Dns1123Subdomain => dns1123_subdomain(name),
            NameRule::Dns1123Label => dns1123_label(name),
            NameRule::Dns1035Label => dns1035_label(name),
            NameRule::PathSegment => path_segment(name, false),
            NameRule::Anything => Vec::new(),
        }
    }

    /// The rules that the beginning of a name (`metadata.generateName`) breaks: something will follow it.
    pub fn check_prefix(self, prefix: &str) -> Vec<String> {
        match self {
            NameRule::PathSegment => path_segment(prefix, true),
            NameRule::Anything => Vec::new(),
            rule => match prefix.strip_suffix('-') {
                Some(rest) if !rest.is_empty() => {
                    let mut masked = rest.to_owned();
                    masked.pop();
                    masked.push('a');
                    rule.check(&masked)
                }
                _ => rule.check(prefix),
            },
        }
    }
}

/// The rules that an RFC 1123 subdomain breaks.
pub fn dns1123_subdomain(name: &str) -> Vec<String> {
    let mut broken = Vec::new();
    if name.len() > SUBDOMAIN_MAX {
        broken.push(at_most(SUBDOMAIN_MAX, "characters"));
    }
    if !is_subdomain(name) {
        broken.push(SUBDOMAIN.to_owned());
    }
    broken
}

/// The rules that an RFC 1123 label breaks.
pub fn dns1123_label(name: &str) -> Vec<String> {
    let mut broken = Vec::new();
    if name.len() > LABEL_MAX {
        broken.push(at_most(LABEL_MAX, "characters"));
    }
    if !is_dns_label(name) {
        let dots_only = is_subdomain(name);
        broken.push(
            if dots_only {
                "must not contain dots"
            } else {
                LABEL
            }
            .to_owned(),
        );
    }
    broken
}

/// The rules that an RFC 1035 label breaks.
pub fn dns1035_label(name: &str) -> Vec<String> {
    let mut broken = Vec::new();
    if name.len() > LABEL_MAX {
        broken.push(at_most(LABEL_MAX, "characters"));
    }
    if !is_dns_label(name) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        broken.push(LABEL_1035.to_owned());
    }
    broken
}

/// The rules that one segment of a path breaks; the beginning of one may be `.` or `..`.
pub fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    let mut broken = Vec::new();
    if !prefix && (name == "." || name == "..") {
        return vec![format!("may not be '{name}'")];
    }
    for bad in ['/', '%'] {
        if name.contains(bad) {
            broken.push(format!("may not contain '{bad}'"));
        }
    }
    broken
}

/// The rules that a qualified name (a label key, an annotation key, a finalizer) breaks.
pub fn qualified_name(name: &str) -> Vec<String> {
    let mut broken = Vec::new();
    let local = match name.split_once('/') {
        None => name,
        Some((_, local)) if local.contains('/') => return vec![KEY.to_owned()],
        Some((prefix, local)) => {
            if prefix.is_empty() {
                broken.push("prefix part must be non-empty".to_owned());
            } else {
                let rules = dns1123_subdomain(prefix).into_iter();
                broken.extend(rules.map(|rule| format!("prefix part {rule}")));
            }
            local
        }
    };
    if local.is_empty() {
        broken.push("name part must be non-empty".to_owned());
    } else if local.len() > LABEL_MAX {
        broken.push(format!("name part {}", at_most(LABEL_MAX, "bytes")));
    }
    if !is_label_text(local) {
        broken.push(NAME_PART.to_owned());
    }
    broken
}

/// The rules that a label value breaks.
pub fn label_value(value: &str) -> Vec<String> {
    let mut broken = Vec::new();
    if value.len() > LABEL_MAX {
        broken.push(at_most(LABEL_MAX, "bytes"));
    }
    if !value.is_empty() && !is_label_text(value) {
        broken.push(LABEL_VALUE.to_owned());
    }
    broken
}

/// The rules that a key of a ConfigMap or Secret breaks.
pub fn config_key(key: &str) -> Vec<String> {
    let mut broken = Vec::new();
    if key.len() > SUBDOMAIN_MAX {
        broken.push(at_most(SUBDOMAIN_MAX, "characters"));
    }
    let word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if key.is_empty() || !key.bytes().all(word) {
        broken.push(CONFIG_KEY.to_owned());
    } else if key == "." {
        broken.push("must not be '.'".to_owned());
    } else if key == ".." {
        broken.push("must not be '..'".to_owned());
    } else if key.starts_with("..") {
        broken.push("must not start with '..'".to_owned());
    }
    broken
}

fn at_most(limit: usize, unit: &str) -> String {
    format!("must be no more than {limit} {unit}")
}

/// `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
fn is_dns_label(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

/// `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`
fn is_label_text(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subdomains_are_lower_case_words_joined_by_dots() {
        for good in ["a", "a-b", "0.1", "a.b-c.d", &"a".repeat(253)] {
            assert!(dns1123_subdomain(good).is_empty(), "{good}");
        }
        for bad in [
            "Upper", "a_b", "-a", "a.", "a..b", "a/b", "a b", "", ".", "über", "a%b",
        ] {
            assert_eq!(dns1123_subdomain(bad), [SUBDOMAIN], "{bad}");
        }
        assert_eq!(
            dns1123_subdomain(&"a".repeat(254)),
            ["must be no more than 253 characters"]
        );
    }

    #[test]
    fn a_label_with_dots_is_told_about_the_dots() {
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        assert_eq!(dns1123_label("V_1"), [LABEL]);
        assert_eq!(
            dns1123_label(&"s".repeat(64)),
            ["must be no more than 63 characters"]
        );
        assert_eq!(dns1035_label("1a"), [LABEL_1035]);
    }

    #[test]
    fn path_segments_may_be_almost_anything() {
        assert!(path_segment("system:Node Proxy", false).is_empty());
        assert_eq!(
            path_segment("a/b%", false),
            ["may not contain '/'", "may not contain '%'"]
        );
        assert_eq!(path_segment("..", false), ["may not be '..'"]);
        assert!(path_segment("..", true).is_empty());
    }

    #[test]
    fn keys_have_an_optional_prefix_and_a_name() {
        assert!(qualified_name("example.com/My_Name.1").is_empty());
        assert_eq!(
            qualified_name(""),
            ["name part must be non-empty", NAME_PART]
        );
        assert_eq!(
            qualified_name("b/"),
            ["name part must be non-empty", NAME_PART]
        );
        assert_eq!(qualified_name("/b"), ["prefix part must be non-empty"]);
        assert_eq!(qualified_name("a/b/c"), [KEY]);
        assert_eq!(qualified_name("a b"), [NAME_PART]);
        assert_eq!(
            qualified_name(&"k".repeat(64)),
            ["name part must be no more than 63 bytes"]
        );
        assert_eq!(
            qualified_name("Example.com/x"),
            [format!("prefix part {SUBDOMAIN}")]
        );
    }

    #[test]
    fn the_beginning_of_a_name_may_end_in_a_dash() {
        let rule = NameRule::Dns1123Subdomain;
        assert!(rule.check_prefix("web-").is_empty());
        assert!(rule.check_prefix("a-").len() <= 1);
        assert_eq!(rule.check_prefix("Bad_"), [SUBDOMAIN]);
    }

    #[test]
    fn config_keys_are_file_names() {
        assert!(config_key("KEY_NAME.txt").is_empty());
        assert_eq!(config_key("a/b"), [CONFIG_KEY]);
        assert_eq!(config_key(".."), ["must not be '..'"]);
        assert_eq!(config_key("..a"), ["must not start with '..'"]);
    }
}

//! What differs from run to run is made the same: uids, times, versions, generated names, prose.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

/// Members whose value is never compared.
const VOLATILE: [&str; 20] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "time",
    "lastTransitionTime",
    "lastUpdateTime",
    "lastProbeTime",
    "startTime",
    "continue",
    "remainingItemCount",
    "clusterIP",
    "clusterIPs",
    "nodePort",
    "token",
    "expirationTimestamp",
    "serverAddress",
    "caBundle",
    "firstTimestamp",
    "lastTimestamp",
];

/// Headers that are compared.
const KEPT_HEADERS: [&str; 10] = [
    "accept-patch",
    "allow",
    "cache-control",
    "content-encoding",
    "content-type",
    "location",
    "retry-after",
    "vary",
    "warning",
    "www-authenticate",
];

/// Members in which a generated name may stand.
const GENERATED: [&str; 4] = ["name", "selfLink", "message", "generated"];

/// Variables shorter than this are too common to be looked for in texts.
const SHORTEST_VARIABLE: usize = 8;

fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap()
}

static UID: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"));
static HASH: LazyLock<Regex> = LazyLock::new(|| pattern(r"X509SHA256=[0-9a-f]{64}"));
static TIME: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"));
static SUFFIX: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"-[bcdfghjklmnpqrstvwxz2456789]{5}(\n?$|"|')"#));

/// Variables read from answers, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Variables(Vec<(String, String)>);

impl Variables {
    /// Sets one; a variable that is set again keeps its place.
    pub fn set(&mut self, name: &str, value: String) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some(entry) => entry.1 = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// `${NAME}` replaced by the variable of that name; an unknown one stays.
    pub fn substitute(&self, text: &str) -> String {
        static VARIABLE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\$\{(\w+)\}"));
        let value = |found: &regex::Captures<'_>| {
            let known = self.0.iter().find(|(name, _)| *name == found[1]);
            known.map_or(found[0].to_owned(), |(_, value)| value.clone())
        };
        VARIABLE.replace_all(text, value).into_owned()
    }

    fn hide(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.0 {
            if value.chars().count() >= SHORTEST_VARIABLE {
                text = text.replace(value.as_str(), &format!("${{{name}}}"));
            }
        }
        text
    }
}

/// An answer with everything volatile masked. `key` is the member that `value` stands in.
pub fn mask(value: &Value, variables: &Variables, key: &str) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| (key.clone(), mask(value, variables, key)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(|i| mask(i, variables, key)).collect(),
        Value::Null => Value::Null,
        Value::String(text) if text.is_empty() || text == "None" => value.clone(),
        _ if VOLATILE.contains(&key) => format!("<{key}>").into(),
        Value::String(text) => mask_text(text, variables, key).into(),
        _ => value.clone(),
    }
}

fn mask_text(text: &str, variables: &Variables, key: &str) -> String {
    let text = variables.hide(text);
    let text = UID.replace_all(&text, "<uid>");
    let text = HASH.replace_all(&text, "X509SHA256=<hash>");
    let text = TIME.replace_all(&text, "<time>");
    let generated = text.contains("gen-") || text.starts_with("kube-api-access-");
    match GENERATED.contains(&key) && generated {
        true => SUFFIX.replace_all(&text, "-<suffix>$1").into_owned(),
        false => text.into_owned(),
    }
}

/// Without the descriptions of table columns, and `everywhere` without any description.
pub fn without_prose(value: Value, everywhere: bool, parent: &str) -> Value {
    match value {
        Value::Object(members) => members
            .into_iter()
            .filter(|(key, value)| {
                let prose = key == "description" && value.is_string();
                !(prose && (everywhere || parent == "columnDefinitions"))
            })
            .map(|(key, value)| {
                let value = without_prose(value, everywhere, &key);
                (key, value)
            })
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items
            .into_iter()
            .map(|item| without_prose(item, everywhere, parent))
            .collect(),
        other => other,
    }
}

/// The headers that are compared, in small letters, repeated ones joined.
pub fn headers(all: &[(String, String)]) -> Map<String, Value> {
    let mut kept: Map<String, Value> = Map::new();
    for (name, value) in all {
        let name = name.to_ascii_lowercase();
        if !KEPT_HEADERS.contains(&name.as_str()) {
            continue;
        }
        let joined = match kept.get(&name).and_then(Value::as_str) {
            Some(before) => format!("{before}, {value}"),
            None => value.clone(),
        };
        kept.insert(name, joined.into());
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_differs_from_run_to_run_is_masked_and_nothing_else() {
        let mut variables = Variables::default();
        variables.set("NAME", "gen-x2bcd".to_owned());
        variables.set("SHORT", "17".to_owned());
        for (given, masked) in [
            (
                json!({"uid": "x", "clusterIP": "None", "token": "", "time": null}),
                json!({"uid": "<uid>", "clusterIP": "None", "token": "", "time": null}),
            ),
            (
                json!({"clusterIPs": ["10.0.0.1"], "nodePort": 3}),
                json!({"clusterIPs": ["<clusterIPs>"], "nodePort": "<nodePort>"}),
            ),
            (
                json!({"name": "gen-zzzzz", "other": "gen-zzzzz"}),
                json!({"name": "gen-<suffix>", "other": "gen-zzzzz"}),
            ),
            (
                json!({"message": "\"gen-bcdfg\" not found", "name": "one-zzzzz"}),
                json!({"message": "\"gen-<suffix>\" not found", "name": "one-zzzzz"}),
            ),
            (
                json!(["gen-x2bcd", "17 and 2026-01-02T03:04:05.6Z"]),
                json!(["${NAME}", "17 and <time>"]),
            ),
            (
                json!("a 01234567-89ab-cdef-0123-456789abcdef b"),
                json!("a <uid> b"),
            ),
        ] {
            assert_eq!(mask(&given, &variables, ""), masked);
        }
        assert_eq!(variables.substitute("/${SHORT}/${NONE}"), "/17/${NONE}");
    }

    #[test]
    fn prose_is_left_out_where_it_is_prose() {
        let columns = json!({"columnDefinitions": [{"name": "a", "description": "b"}]});
        let without = json!({"columnDefinitions": [{"name": "a"}]});
        assert_eq!(without_prose(columns, false, ""), without);
        let property =
            json!({"properties": {"description": {"type": "string", "description": "b"}}});
        assert_eq!(without_prose(property.clone(), false, ""), property);
        let bare = json!({"properties": {"description": {"type": "string"}}});
        assert_eq!(without_prose(property, true, ""), bare);
    }

    #[test]
    fn repeated_headers_are_joined_and_others_dropped() {
        let pair = |n: &str, v: &str| (n.to_owned(), v.to_owned());
        let all = [pair("Vary", "A"), pair("Date", "x"), pair("VARY", "B")];
        assert_eq!(Value::from(headers(&all)), json!({"vary": "A, B"}));
    }
}

//! The same conversation with other names, so that no answer can be one that was learnt by heart.
//!
//! Every name, namespace and label value that the conversation itself brings gets an ending that a seed decides; in
//! answers that ending is taken away again before they are compared, which makes the comparison the same as without.
//! An ending, and not another beginning, because lists are sorted by name: `a-0xyz` stands before `a-b-0xyz` and
//! `a1-0xyz` as `a` does before `a-b` and `a1`. Names that a cluster has by itself stay, and so do texts that are no
//! valid names, because those are about the text.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use regex::Regex;

use super::model::{Document, Recording, Request};

/// Longer names are about their length.
const LONGEST: usize = 40;
/// Letters of the ending: none that a uid or a generated name may contain beside `-0`.
const LETTERS: &[u8] = b"hjkmnpqrstvwxyz";
/// What exists, or means something, without anybody creating it.
const FIXED: [&str; 8] = [
    "default",
    "kubernetes",
    "kube-system",
    "kube-public",
    "kube-node-lease",
    "admin",
    "alice",
    "view",
];
/// Members that hold a name of an object, wherever they are.
const NAME_MEMBERS: [&str; 9] = [
    "name",
    "namespace",
    "nodeName",
    "resourceNames",
    "serviceAccountName",
    "serviceName",
    "secretName",
    "claimName",
    "values",
];
/// Members that hold labels.
const LABEL_MEMBERS: [&str; 4] = ["labels", "matchLabels", "selector", "nodeSelector"];

/// How a body in protobuf begins.
const PROTOBUF: &str = "k8s\0";
/// Where the name is in it: the object's bytes, its metadata, the name.
const NAME_IN_PROTOBUF: [u8; 3] = [2, 1, 1];

static NAME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$").unwrap());
static LABEL_VALUE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$").unwrap());
/// A name in a body that is a text: JSON or YAML.
static NAME_IN_TEXT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(\bname"?: ?"?)([a-z0-9][-a-z0-9.]*)"#).unwrap());
/// Other names for one conversation.
#[derive(Debug, Clone)]
pub struct Renaming {
    ending: String,
    names: BTreeSet<String>,
}

impl Renaming {
    /// The names of `recording`, with an ending by `seed`.
    pub fn new(recording: &Recording, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let letters = (0..4).map(|_| LETTERS[random.random_range(0..LETTERS.len())] as char);
        let ending = letters.fold("-0".to_owned(), |mut ending, letter| {
            ending.push(letter);
            ending
        });
        let mut names = BTreeSet::new();
        for step in &recording.steps {
            collect(&step.request, &mut names);
        }
        Self { ending, names }
    }

    /// A request with the new names.
    pub fn request(&self, request: &Request) -> Request {
        let headers = request.headers.iter();
        Request {
            method: request.method.clone(),
            path: self.target(&request.path),
            headers: headers
                .map(|(name, value)| (name.clone(), self.identity(value)))
                .collect(),
            body: request.body.as_ref().map(|body| match body {
                Document::Text(text) => Document::Text(self.text(text)),
                body => self.member("", body),
            }),
        }
    }

    /// A text of an answer with the old names.
    pub fn undo(&self, text: &str) -> String {
        text.replace(&self.ending, "")
    }

    fn is_ours(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    fn name(&self, name: &str) -> String {
        match self.is_ours(name) {
            true => format!("{name}{}", self.ending),
            false => self.identity(name),
        }
    }

    /// Names of service accounts and of their groups have a namespace in them.
    fn identity(&self, text: &str) -> String {
        let parts: Vec<&str> = text.split(':').collect();
        match parts[..] {
            ["system", "serviceaccount", namespace, name] => format!(
                "system:serviceaccount:{}:{}",
                self.name(namespace),
                self.name(name)
            ),
            ["system", "serviceaccounts", namespace] => {
                format!("system:serviceaccounts:{}", self.name(namespace))
            }
            _ => text.to_owned(),
        }
    }

    fn label(&self, value: &str) -> String {
        let valid = LABEL_VALUE.is_match(value) && value.len() <= LONGEST;
        match valid && !FIXED.contains(&value) {
            true => format!("{value}{}", self.ending),
            false => value.to_owned(),
        }
    }

    fn text(&self, text: &str) -> String {
        if let Some(message) = text.strip_prefix(PROTOBUF) {
            let renamed = self.in_protobuf(message.as_bytes(), &NAME_IN_PROTOBUF);
            let renamed = renamed.and_then(|bytes| String::from_utf8(bytes).ok());
            return renamed.map_or(text.to_owned(), |renamed| format!("{PROTOBUF}{renamed}"));
        }
        let renamed =
            |found: &regex::Captures<'_>| format!("{}{}", &found[1], self.name(&found[2]));
        NAME_IN_TEXT.replace_all(text, renamed).into_owned()
    }

    /// A message with another name where the fields of `path` lead; none when it is no message of short parts.
    fn in_protobuf(&self, mut message: &[u8], path: &[u8]) -> Option<Vec<u8>> {
        let Some((field, rest)) = path.split_first() else {
            return Some(self.name(std::str::from_utf8(message).ok()?).into_bytes());
        };
        let mut out = Vec::new();
        while let [tag, length, others @ ..] = message {
            // A part with a length, below 128 so that it is one byte.
            if tag & 7 != 2 || *length > 127 {
                return None;
            }
            let (part, others) = others.split_at_checked(usize::from(*length))?;
            let part = match tag >> 3 == *field {
                true => self.in_protobuf(part, rest)?,
                false => part.to_vec(),
            };
            out.push(*tag);
            out.push(
                u8::try_from(part.len())
                    .ok()
                    .filter(|length| *length < 128)?,
            );
            out.extend(part);
            message = others;
        }
        message.is_empty().then_some(out)
    }

    fn target(&self, target: &str) -> String {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let mut renamed = String::new();
        let positions = name_positions(path);
        for (i, segment) in path.split('/').enumerate() {
            if i > 0 {
                renamed.push('/');
            }
            match positions.contains(&i) {
                true => renamed.push_str(&self.name(segment)),
                false => renamed.push_str(segment),
            }
        }
        if let Some(query) = query {
            let pairs: Vec<_> = query.split('&').map(|pair| self.pair(pair)).collect();
            renamed.push('?');
            renamed.push_str(&pairs.join("&"));
        }
        renamed
    }

    fn pair(&self, pair: &str) -> String {
        match pair.split_once('=') {
            Some((key @ "labelSelector", value)) => {
                format!("{key}={}", selected(value, &|v| self.label(v)))
            }
            Some((key @ "fieldSelector", value)) => {
                format!("{key}={}", selected(value, &|v| self.name(v)))
            }
            _ => pair.to_owned(),
        }
    }

    /// A value that stands in the member `key`.
    fn member(&self, key: &str, value: &Document) -> Document {
        match value {
            Document::Map(members) if LABEL_MEMBERS.contains(&key) => self.labels(members),
            Document::Map(members) => {
                let renamed = members
                    .iter()
                    .map(|(key, value)| (key.clone(), self.member(key, value)));
                let mut renamed: Vec<_> = renamed.collect();
                self.label_of_a_json_patch(members, &mut renamed);
                Document::Map(renamed)
            }
            Document::List(items) => {
                Document::List(items.iter().map(|item| self.member(key, item)).collect())
            }
            Document::Text(text) if NAME_MEMBERS.contains(&key) => Document::Text(self.name(text)),
            Document::Text(text) => Document::Text(self.identity(text)),
            plain => plain.clone(),
        }
    }

    /// The values of labels; what a selector has beside them (`matchLabels`, `matchExpressions`) as elsewhere.
    fn labels(&self, members: &[(String, Document)]) -> Document {
        let renamed = members.iter().map(|(key, value)| {
            let value = match value {
                Document::Text(text) if !key.starts_with('$') => Document::Text(self.label(text)),
                other => self.member(key, other),
            };
            (key.clone(), value)
        });
        Document::Map(renamed.collect())
    }

    /// `{"path": "/metadata/labels/x", "value": "y"}`
    fn label_of_a_json_patch(
        &self,
        members: &[(String, Document)],
        renamed: &mut [(String, Document)],
    ) {
        let is_label = members.iter().any(|(key, value)| {
            let path =
                matches!(value, Document::Text(path) if path.starts_with("/metadata/labels/"));
            key == "path" && path
        });
        for (key, value) in renamed.iter_mut().filter(|_| is_label) {
            if let ("value", Document::Text(text)) = (key.as_str(), &*value) {
                *value = Document::Text(self.label(text));
            }
        }
    }
}

/// A selector of a query whose values (after `=`, or within parentheses) are changed; nothing else is touched.
fn selected(selector: &str, change: &dyn Fn(&str) -> String) -> String {
    let mut out = String::new();
    let (mut within, mut after_equals) = (false, false);
    let mut rest = selector;
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)));
        let word = &rest[..word.unwrap_or(rest.len())];
        if !word.is_empty() {
            match within || after_equals {
                true => out.push_str(&change(word)),
                false => out.push_str(word),
            }
            after_equals = false;
            rest = &rest[word.len()..];
            continue;
        }
        // A character by itself, or escaped.
        let length = match first {
            '%' => rest.len().min(3),
            _ => first.len_utf8(),
        };
        let (piece, others) = rest.split_at_checked(length).unwrap_or((rest, ""));
        match piece.to_ascii_uppercase().as_str() {
            "=" | "%3D" => after_equals = true,
            "(" | "%28" => within = true,
            ")" | "%29" => within = false,
            "," | "%2C" => after_equals = false,
            _ => {}
        }
        out.push_str(piece);
        rest = others;
    }
    out
}

/// Which segments of a path are names: after `namespaces`, and after a resource.
fn name_positions(path: &str) -> Vec<usize> {
    let segments: Vec<&str> = path.split('/').collect();
    let mut at = match segments.get(1) {
        Some(&"api") => 3,
        Some(&"apis") => 4,
        _ => return Vec::new(),
    };
    if segments.get(at) == Some(&"watch") {
        at += 1;
    }
    let mut positions = Vec::new();
    if segments.get(at) == Some(&"namespaces") {
        positions.push(at + 1);
        at += 2;
    }
    positions.push(at + 1);
    positions
}

/// The names that a request brings: of what it creates, and of the namespace it speaks of.
fn collect(request: &Request, names: &mut BTreeSet<String>) {
    let mut found = Vec::new();
    let path = request.path.split('?').next().unwrap_or_default();
    let segments: Vec<&str> = path.split('/').collect();
    let in_namespace = segments.iter().position(|s| *s == "namespaces");
    if let Some(namespace) = in_namespace.and_then(|at| segments.get(at + 1)) {
        found.push((*namespace).to_owned());
    }
    if matches!(request.method.as_str(), "PUT" | "PATCH" | "DELETE" | "GET")
        && in_namespace.is_some()
    {
        let named = name_positions(path);
        let named = named.last().and_then(|at| segments.get(*at));
        found.extend(named.map(|name| (*name).to_owned()));
    }
    match &request.body {
        Some(Document::Map(members)) => {
            let metadata = members.iter().find(|(key, _)| key == "metadata");
            if let Some((_, Document::Map(metadata))) = metadata {
                found.extend(metadata.iter().filter_map(|(key, value)| match value {
                    Document::Text(name) if key == "name" => Some(name.clone()),
                    _ => None,
                }));
            }
        }
        Some(Document::Text(text)) => {
            let captures = NAME_IN_TEXT.captures_iter(text);
            found.extend(captures.map(|found| found[2].to_owned()));
        }
        _ => {}
    }
    let ours = |name: &String| {
        NAME.is_match(name) && name.len() <= LONGEST && !FIXED.contains(&name.as_str())
    };
    names.extend(found.into_iter().filter(ours));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renaming() -> Renaming {
        let names = ["ns", "one", "d"].map(str::to_owned);
        Renaming {
            ending: "-0xyz".to_owned(),
            names: names.into_iter().collect(),
        }
    }

    #[test]
    fn names_are_changed_where_names_stand_and_nowhere_else() {
        let renaming = renaming();
        for (target, renamed) in [
            (
                "/api/v1/namespaces/ns/configmaps/one?pretty=one",
                "/api/v1/namespaces/ns-0xyz/configmaps/one-0xyz?pretty=one",
            ),
            (
                "/api/v1/namespaces/ns/status",
                "/api/v1/namespaces/ns-0xyz/status",
            ),
            ("/apis/d/v1/one/d/one", "/apis/d/v1/one/d-0xyz/one"),
            (
                "/api/v1/watch/namespaces/ns/one",
                "/api/v1/watch/namespaces/ns-0xyz/one",
            ),
            ("/healthz/one", "/healthz/one"),
            (
                "/api/v1/pods?labelSelector=a%3Db,c%20in%20(d,e),!f&fieldSelector=metadata.name!=one",
                "/api/v1/pods?labelSelector=a%3Db-0xyz,c%20in%20(d-0xyz,e-0xyz),!f&fieldSelector=metadata.name!=one-0xyz",
            ),
        ] {
            assert_eq!(renaming.target(target), renamed);
        }
        for (body, renamed) in [
            (
                r#"{"metadata": {"name": "one", "labels": {"a": "b"}}, "data": {"one": "one"}}"#,
                r#"{"metadata": {"name": "one-0xyz", "labels": {"a": "b-0xyz"}}, "data": {"one": "one"}}"#,
            ),
            (
                r#"[{"op": "add", "path": "/metadata/labels/x", "value": "one"}, {"op": "add", "path": "/data/x", "value": "one"}]"#,
                r#"[{"op": "add", "path": "/metadata/labels/x", "value": "one-0xyz"}, {"op": "add", "path": "/data/x", "value": "one"}]"#,
            ),
            (
                r#"{"user": "system:serviceaccount:ns:default", "name": "default"}"#,
                r#"{"user": "system:serviceaccount:ns-0xyz:default", "name": "default"}"#,
            ),
        ] {
            let document: Document = serde_json::from_str(body).unwrap();
            let mut written = String::new();
            renaming.member("", &document).write(&mut written);
            assert_eq!(written, renamed);
        }
        assert_eq!(
            renaming.text("kind: X\nmetadata:\n  name: one\n"),
            "kind: X\nmetadata:\n  name: one-0xyz\n"
        );
    }

    #[test]
    fn a_name_in_protobuf_is_changed_with_the_lengths_around_it() {
        let body = "k8s\0\n\x04\n\x02v1\x12\x09\n\x05\n\x03one\x1a\0";
        let renamed = "k8s\0\n\x04\n\x02v1\x12\x0e\n\x0a\n\x08one-0xyz\x1a\0";
        assert_eq!(renaming().text(body), renamed);
        assert_eq!(renaming().text("k8s\0~~~~"), "k8s\0~~~~");
    }

    #[test]
    fn directives_of_a_patch_are_no_labels() {
        let body = r#"{"labels": {"$patch": "replace", "a": "b"}}"#;
        let document: Document = serde_json::from_str(body).unwrap();
        let mut written = String::new();
        renaming().member("", &document).write(&mut written);
        assert_eq!(
            written,
            r#"{"labels": {"$patch": "replace", "a": "b-0xyz"}}"#
        );
    }

    #[test]
    fn taking_the_ending_away_gives_the_old_name_back() {
        assert_eq!(
            renaming().undo("configmaps \"one-0xyz\" in ns-0xyz"),
            "configmaps \"one\" in ns"
        );
    }

    #[test]
    fn a_seed_decides_the_ending() {
        let recording = Recording::load("verbs");
        let ending = |seed| Renaming::new(&recording, seed).ending;
        assert_eq!(ending(1), ending(1));
        assert_ne!(ending(1), ending(2));
    }

    #[test]
    fn the_order_of_names_stays() {
        let mut names = ["a", "a-b", "a1", "ab", "b", "a.b", "conv", "conv-x"];
        names.sort_unstable();
        let renamed = names.map(|name| format!("{name}-0xyz"));
        assert!(renamed.is_sorted());
    }
}

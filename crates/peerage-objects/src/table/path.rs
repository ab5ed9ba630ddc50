//! Paths into an object, in the part of kubectl's JSONPath that columns use: `.spec.replicas`,
//! `.status.conditions[?(@.type=="Ready")].status`, `.spec.ports[*].port`, `['a.b']`, `[0]`, `[-1]`.

use serde_json::Value;

/// A path that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldPath {
    steps: Vec<Step>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Field(String),
    Index(i64),
    All,
    /// Elements with that text in that field.
    Where(String, String),
}

/// Why a text is no path.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unrecognized path {path}: {reason}")]
pub struct FieldPathError {
    path: String,
    reason: &'static str,
}

impl FieldPath {
    /// Reads a path; braces around it and a missing first dot are forgiven.
    pub fn parse(text: &str) -> Result<FieldPath, FieldPathError> {
        let inner = text.trim();
        let inner = inner
            .strip_prefix('{')
            .and_then(|t| t.strip_suffix('}'))
            .unwrap_or(inner);
        let mut rest = inner.strip_prefix('$').unwrap_or(inner);
        let mut steps = Vec::new();
        let error = |reason| FieldPathError {
            path: text.to_owned(),
            reason,
        };
        while !rest.is_empty() {
            if let Some(bracket) = rest.strip_prefix('[') {
                let end = closing(bracket).ok_or_else(|| error("a bracket is not closed"))?;
                let step = in_brackets(&bracket[..end]);
                steps.push(step.ok_or_else(|| error("what is in brackets is not supported"))?);
                rest = &bracket[end + 1..];
                continue;
            }
            rest = rest.strip_prefix('.').unwrap_or(rest);
            if rest.is_empty() || rest.starts_with('[') {
                continue;
            }
            let (name, after) = name(rest).ok_or_else(|| error("a name is missing"))?;
            steps.push(if name == "*" {
                Step::All
            } else {
                Step::Field(name)
            });
            rest = after;
        }
        Ok(FieldPath { steps })
    }

    /// The path of these fields.
    pub fn of_fields<'n>(names: impl IntoIterator<Item = &'n str>) -> FieldPath {
        let names = names.into_iter();
        let steps = names.map(|name| Step::Field(name.to_owned())).collect();
        FieldPath { steps }
    }

    /// Everything that the path means in an object.
    pub fn all<'o>(&self, object: &'o Value) -> Vec<&'o Value> {
        let mut found = vec![object];
        for step in &self.steps {
            found = found
                .into_iter()
                .flat_map(|value| step.from(value))
                .collect();
        }
        found.retain(|value| !value.is_null());
        found
    }

    /// The first thing that the path means in an object.
    pub fn first<'o>(&self, object: &'o Value) -> Option<&'o Value> {
        self.all(object).into_iter().next()
    }

    /// What the path means, for a cell: one thing as it is, several joined by commas; none for nothing.
    pub fn joined(&self, object: &Value) -> Option<Value> {
        match self.all(object).as_slice() {
            [] => None,
            [one @ (Value::Array(_) | Value::Object(_))] => Some(Value::from(plain(one))),
            [one] => Some((*one).clone()),
            many => {
                let texts: Vec<String> = many.iter().map(|value| plain(value)).collect();
                Some(Value::from(texts.join(",")))
            }
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Step {
    fn from<'o>(&self, value: &'o Value) -> Vec<&'o Value> {
        match (self, value) {
            (Step::Field(name), Value::Object(fields)) => fields.get(name).into_iter().collect(),
            (Step::Index(at), Value::Array(items)) => {
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let at = if *at < 0 { *at + length } else { *at };
                let item = usize::try_from(at).ok().and_then(|at| items.get(at));
                item.into_iter().collect()
            }
            (Step::All, Value::Array(items)) => items.iter().collect(),
            (Step::All, Value::Object(fields)) => fields.values().collect(),
            (Step::Where(field, text), Value::Array(items)) => {
                let fits =
                    |item: &&Value| item.get(field).is_some_and(|value| plain(value) == *text);
                items.iter().filter(fits).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Where the bracket that was opened before the text is closed; quotes are stepped over.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, ']') => return Some(at),
            (None, _) => {}
        }
    }
    None
}

fn in_brackets(text: &str) -> Option<Step> {
    let text = text.trim();
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(name) = unquote(text) {
        return Some(Step::Field(name.to_owned()));
    }
    if let Some(filter) = text
        .strip_prefix("?(")
        .and_then(|text| text.strip_suffix(')'))
    {
        let (field, value) = filter.split_once("==")?;
        let field = field.trim().strip_prefix("@.")?;
        let value = value.trim();
        let value = unquote(value).unwrap_or(value);
        return Some(Step::Where(field.to_owned(), value.to_owned()));
    }
    text.parse().ok().map(Step::Index)
}

fn unquote(text: &str) -> Option<&str> {
    ['\'', '"']
        .into_iter()
        .find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

/// A name up to the next dot or bracket; a backslash takes the next character as it is.
fn name(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut rest = "";
    while let Some((at, c)) = chars.next() {
        match c {
            '.' | '[' => {
                rest = &text[at..];
                break;
            }
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            c => name.push(c),
        }
    }
    (!name.is_empty()).then_some((name, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn paths_find_what_they_mean() {
        let object = json!({
            "spec": {"replicas": 3, "ports": [{"port": 80}, {"port": 443}], "a.b": "dotted", "l": [1, 2]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
        });
        for (path, cell) in [
            (".spec.replicas", json!(3)),
            ("spec.replicas", json!(3)),
            ("{.spec.replicas}", json!(3)),
            (".spec.ports[*].port", json!("80,443")),
            (".spec.ports[0].port", json!(80)),
            (".spec.ports[-1].port", json!(443)),
            (".spec['a.b']", json!("dotted")),
            (".spec.a\\.b", json!("dotted")),
            (
                ".status.conditions[?(@.type==\"Ready\")].status",
                json!("True"),
            ),
            (
                ".status.conditions[?(@.type=='Other')].status",
                json!("False"),
            ),
            (".spec.l", json!("[1,2]")),
        ] {
            assert_eq!(
                FieldPath::parse(path).unwrap().joined(&object),
                Some(cell),
                "{path}"
            );
        }
        for path in [
            ".spec.none",
            ".spec.ports[7]",
            ".spec.replicas.x",
            ".status.conditions[?(@.type==\"X\")].status",
        ] {
            assert_eq!(
                FieldPath::parse(path).unwrap().joined(&object),
                None,
                "{path}"
            );
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in [".a[", ".a[?(@.b>1)]", "..a.."] {
            let _ = FieldPath::parse(text);
        }
        assert!(FieldPath::parse(".a[").is_err());
        assert!(FieldPath::parse(".a[?(@.b>1)]").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_a_panic(text in "[a.\\[\\]'\"?@()=*$\\\\0-9é-]{0,16}") {
            if let Ok(path) = FieldPath::parse(&text) {
                let _ = path.joined(&json!({"a": [{"a": 1}, "é"]}));
            }
        }
    }
}

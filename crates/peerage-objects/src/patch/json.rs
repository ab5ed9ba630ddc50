//! JSON patch, RFC 6902, with the habits of the library that kube-apiserver uses: a path may lack its first slash
//! (what is before the first slash does not count), indices may be negative, a missing key of a map reads as
//! `null`, and `replace` may create one.

use serde_json::Value;

use super::{MAX_OPERATIONS, PatchError};
use crate::json::{self, Node};

/// How many bytes `copy` operations may add in all: what kube-apiserver takes as a request body.
const MAX_COPIED: usize = 3 * 1024 * 1024;

/// A JSON patch that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPatch {
    operations: Vec<Operation>,
}

#[derive(Clone, Debug, PartialEq)]
struct Operation {
    op: String,
    path: Option<String>,
    from: Option<String>,
    value: Value,
}

impl JsonPatch {
    pub(super) fn parse(body: &[u8]) -> Result<JsonPatch, PatchError> {
        let node = json::parse(body).map_err(PatchError::Syntax)?;
        let items = match &node {
            Node::Array(items) => items.as_slice(),
            Node::Null => &[],
            other => {
                return Err(PatchError::Shape {
                    found: other.kind_name(),
                    wanted: "value of type []handlers.jsonPatchOp",
                });
            }
        };
        if items.len() > MAX_OPERATIONS {
            return Err(PatchError::TooManyOperations(items.len()));
        }
        let operations = items
            .iter()
            .map(Operation::read)
            .collect::<Result<_, _>>()?;
        Ok(JsonPatch { operations })
    }

    pub(super) fn apply(&self, document: &mut Value) -> Result<(), PatchError> {
        let mut copied = 0;
        for operation in &self.operations {
            operation
                .apply(document, &mut copied)
                .map_err(PatchError::Operation)?;
        }
        Ok(())
    }
}

impl Operation {
    fn read(node: &Node<'_>) -> Result<Operation, PatchError> {
        if !matches!(node, Node::Object(_) | Node::Null) {
            return Err(PatchError::Shape {
                found: node.kind_name(),
                wanted: "value of type handlers.jsonPatchOp",
            });
        }
        let text = |name: &str, wanted: &'static str| match node.get(name) {
            None | Some(Node::Null) => Ok(None),
            Some(Node::String(text)) => Ok(Some(text.to_string())),
            Some(other) => Err(PatchError::Shape {
                found: other.kind_name(),
                wanted,
            }),
        };
        Ok(Operation {
            op: text("op", "struct field jsonPatchOp.op of type string")?.unwrap_or_default(),
            path: text("path", "struct field jsonPatchOp.path of type string")?,
            from: text("from", "struct field jsonPatchOp.from of type string")?,
            value: node.get("value").map(Node::to_value).unwrap_or_default(),
        })
    }

    fn apply(&self, document: &mut Value, copied: &mut usize) -> Result<(), String> {
        let path = self.path.as_deref().ok_or("an operation has no path")?;
        match self.op.as_str() {
            "add" => add(document, path, self.value.clone()),
            "remove" => remove(document, path).map(drop),
            "replace" => replace(document, path, &self.value),
            "move" => {
                let moved = remove(document, self.from()?)?;
                add(document, path, moved)
            }
            "copy" => {
                let value = get(document, self.from()?)?.clone();
                *copied += value.to_string().len();
                if *copied > MAX_COPIED {
                    return Err(format!("copies more than {MAX_COPIED} bytes"));
                }
                add(document, path, value)
            }
            "test" if path.is_empty() && *document == self.value => Ok(()),
            "test" if !path.is_empty() && *get(document, path)? == self.value => Ok(()),
            "test" => Err(format!("testing value {path} failed")),
            other => Err(format!("unexpected kind: {other}")),
        }
    }

    fn from(&self) -> Result<&str, String> {
        self.from
            .as_deref()
            .ok_or_else(|| format!("{} has no from", self.op))
    }
}

/// Refuses a value that would nest deeper than anything that can be read.
fn check_depth(path: &str, value: &Value) -> Result<(), String> {
    fn depth(value: &Value) -> usize {
        match value {
            Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
            Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
            _ => 0,
        }
    }
    let above = path.split('/').count();
    if above + depth(value) > json::MAX_DEPTH {
        return Err("exceeded max depth".to_owned());
    }
    Ok(())
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    check_depth(path, &value)?;
    match container(document, path)? {
        (Value::Object(fields), key) => {
            fields.insert(key, value);
        }
        (Value::Array(items), key) if key == "-" => items.push(value),
        (Value::Array(items), key) => {
            let at = index(&key, items.len() + 1)?;
            items.insert(at, value);
        }
        _ => return Err(missing(path)),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str) -> Result<Value, String> {
    match container(document, path)? {
        (Value::Object(fields), key) => fields.remove(&key).ok_or_else(|| missing(path)),
        (Value::Array(items), key) => {
            let at = index(&key, items.len())?;
            Ok(items.remove(at))
        }
        _ => Err(missing(path)),
    }
}

fn replace(document: &mut Value, path: &str, value: &Value) -> Result<(), String> {
    check_depth(path, value)?;
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err("the whole must be an object or array".to_owned());
        }
        *document = value.clone();
        return Ok(());
    }
    match container(document, path)? {
        (Value::Object(fields), key) => {
            fields.insert(key, value.clone());
        }
        (Value::Array(items), key) => {
            let at = index(&key, items.len())?;
            items[at] = value.clone();
        }
        _ => return Err(missing(path)),
    }
    Ok(())
}

/// What is at a path; a missing key of a map is `null`.
fn get<'v>(document: &'v mut Value, path: &str) -> Result<&'v Value, String> {
    match container(document, path)? {
        (Value::Object(fields), key) => Ok(fields.get(&key).unwrap_or(&Value::Null)),
        (Value::Array(items), key) => {
            let at = index(&key, items.len())?;
            Ok(&items[at])
        }
        _ => Err(missing(path)),
    }
}

/// The map or list that holds what a path means, and the last part of the path.
fn container<'v>(document: &'v mut Value, path: &str) -> Result<(&'v mut Value, String), String> {
    let mut parts = path.split('/').skip(1).map(unescape).peekable();
    let mut at = document;
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return Ok((at, part));
        }
        let next = match at {
            Value::Object(fields) => fields.get_mut(&part),
            Value::Array(items) => {
                let at = index(&part, items.len())?;
                items.get_mut(at)
            }
            _ => None,
        };
        at = next.ok_or_else(|| missing(path))?;
    }
    Err(missing(path))
}

/// A position in a list of so many; negative ones count from the end.
fn index(text: &str, length: usize) -> Result<usize, String> {
    let wrong = || format!("invalid index referenced: {text}");
    let at: i64 = text.parse().map_err(|_| wrong())?;
    let length = i64::try_from(length).map_err(|_| wrong())?;
    let at = if at < 0 { at + length } else { at };
    if (0..length).contains(&at) {
        usize::try_from(at).map_err(|_| wrong())
    } else {
        Err(wrong())
    }
}

fn unescape(part: &str) -> String {
    if !part.contains('~') {
        return part.to_owned();
    }
    let mut out = String::with_capacity(part.len());
    let mut rest = part;
    while let Some(at) = rest.find('~') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (c, length) = match rest.as_bytes().get(1) {
            Some(b'1') => ('/', 2),
            Some(b'0') => ('~', 2),
            _ => ('~', 1),
        };
        out.push(c);
        rest = &rest[length..];
    }
    out + rest
}

fn missing(path: &str) -> String {
    format!("the document has no path {path}")
}

//! The cells of built-in kinds' tables: which column shows which field, and functions for those that no field is.
//!
//! Columns are the catalogue's, as recorded; putting a Table together is left to `peerage_objects::table`.
//!
//! Invariant: every column of every kind has a cell; what is not there is shown as kube-apiserver shows it
//! (`<none>`, `<unset>`, `<unknown>`, or nothing at all).

mod access;
mod cluster;
mod network;
mod storage;
mod workloads;

use jiff::Timestamp;
use peerage_objects::table::{Cell, Column, ColumnDefinition, FieldPath, human_duration};
use peerage_objects::time;
use serde_json::Value;

use crate::resource::Resource;

/// What makes a cell of an object, at a time.
type Make = fn(&Value, Timestamp) -> Value;

/// Kind, column, function. A kind `*` stands for all kinds that have such a column and no entry of their own.
type Entry = (&'static str, &'static str, Make);

const UNKNOWN: &str = "<unknown>";
const NONE: &str = "<none>";
const UNSET: &str = "<unset>";

impl Resource {
    /// The columns of the resource's tables with what makes their cells.
    pub fn table_columns(&self) -> Vec<Column> {
        let columns = self.columns.iter().map(|column| Column {
            definition: ColumnDefinition {
                name: column.name.to_string(),
                kind: column.kind.to_string(),
                format: column.format.to_string(),
                priority: column.priority,
            },
            cell: self.cell(column),
        });
        columns.collect()
    }

    fn cell(&self, column: &crate::resource::Column) -> Cell {
        if let Some(make) = computed(&self.kind, &column.name) {
            return Cell::Computed(make);
        }
        if &*column.name == "Age" {
            return Cell::creation_age();
        }
        let path = column
            .path
            .as_deref()
            .and_then(|p| FieldPath::parse(p).ok());
        match (&*column.name, path) {
            ("Name", _) => Cell::Name,
            (_, Some(path)) => Cell::Field(path, absent(&self.kind, column)),
            (_, None) => Cell::Computed(|_, _| NONE.into()),
        }
    }
}

fn computed(kind: &str, column: &str) -> Option<Make> {
    let all = [
        workloads::CELLS,
        cluster::CELLS,
        network::CELLS,
        storage::CELLS,
        access::CELLS,
    ];
    let find = |kind: &str| {
        let mut entries = all.iter().flat_map(|cells| cells.iter());
        entries
            .find(|(k, c, _)| *k == kind && *c == column)
            .map(|(_, _, make)| *make)
    };
    find(kind).or_else(|| find("*"))
}

/// What a column shows when its field is not there.
fn absent(kind: &str, column: &crate::resource::Column) -> Value {
    match (kind, &*column.name, &*column.kind) {
        (_, _, "integer") | ("Deployment", "Up-to-date" | "Available", _) => 0.into(),
        (_, _, "boolean") => false.into(),
        ("Node", "OS-Image" | "Kernel-Version" | "Container-Runtime", _) => UNKNOWN.into(),
        (
            _,
            "VolumeAttributesClass"
            | "VolumeMode"
            | "ReclaimPolicy"
            | "VolumeBindingMode"
            | "ParamKind",
            _,
        ) => UNSET.into(),
        ("Service" | "PriorityLevelConfiguration", _, _) => NONE.into(),
        _ => "".into(),
    }
}

/// A text in an object by JSON pointer; empty if it is not there.
fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or("")
}

/// A number in an object by JSON pointer; 0 if it is not there.
fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// A list in an object by JSON pointer; empty if it is not there.
fn list<'v>(object: &'v Value, pointer: &str) -> &'v [Value] {
    let list = object.pointer(pointer).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

/// A text, or a word for none.
fn or(text: &str, none: &str) -> Value {
    if text.is_empty() {
        none.into()
    } else {
        text.into()
    }
}

/// Texts joined by commas, or `<none>`.
fn joined<'v>(texts: impl Iterator<Item = &'v str>) -> Value {
    or(&texts.collect::<Vec<_>>().join(","), NONE)
}

/// How long ago a time is.
fn ago(object: &Value, pointer: &str, now: Timestamp, none: &str) -> Value {
    let then = text(object, pointer);
    match time::parse(then).or_else(|_| time::parse_micro(then)) {
        Ok(then) => human_duration(now.duration_since(then)).into(),
        Err(_) => none.into(),
    }
}

/// A label selector in words: `app=web,tier in (a,b)`.
fn selector(value: Option<&Value>) -> Value {
    let mut words = Vec::new();
    let Some(value) = value else {
        return NONE.into();
    };
    for (key, value) in value
        .get("matchLabels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        words.push(format!("{key}={}", value.as_str().unwrap_or("")));
    }
    for term in list(value, "/matchExpressions") {
        let key = text(term, "/key");
        let values: Vec<_> = list(term, "/values")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let values = values.join(",");
        words.push(match text(term, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    words.sort();
    or(&words.join(","), NONE)
}

/// Labels in words: `app=web,tier=a`.
fn labels(value: Option<&Value>) -> Value {
    let pairs = value.and_then(Value::as_object).into_iter().flatten();
    let words = pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")));
    or(&words.collect::<Vec<_>>().join(","), NONE)
}

/// The condition of a type.
fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    list(object, "/status/conditions")
        .iter()
        .find(|c| c["type"] == kind)
}

/// The first few, and how many more there are.
fn first_few(words: &[String], most: usize) -> Value {
    if words.is_empty() {
        return NONE.into();
    }
    let mut text = words
        .iter()
        .take(most)
        .cloned()
        .collect::<Vec<_>>()
        .join(",");
    if words.len() > most {
        text.push_str(&format!(" + {} more...", words.len() - most));
    }
    text.into()
}

//! Tables (`meta.k8s.io/v1` `Table`) and partial metadata: what kubectl shows.
//!
//! Which columns a kind has, and how its cells are made, is data of the catalogue or of a custom resource
//! definition. Cells that need code are functions there ([`Cell::Computed`]).

mod age;
mod path;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

pub use age::human_duration;
pub use path::{FieldPath, FieldPathError};

use crate::time;

/// A column: its definition, and how its cells are made.
#[derive(Clone, Debug)]
pub struct Column {
    /// What clients are told of it.
    pub definition: ColumnDefinition,
    /// How its cells are made.
    pub cell: Cell,
}

/// What clients are told of a column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ColumnDefinition {
    /// The heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean`, `date`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `name` for the column of names.
    pub format: String,
    /// 0 is always shown, more only in wide output.
    pub priority: i32,
}

/// How a cell is made of an object.
#[derive(Clone, Debug)]
pub enum Cell {
    /// The object's name.
    Name,
    /// How long ago the time at a path is; `<unknown>` without one.
    Age(FieldPath),
    /// What is at a path, or this if nothing is.
    Field(FieldPath, Value),
    /// How many elements or keys are at a path.
    Count(FieldPath),
    /// What a function makes of it.
    Computed(fn(&Value, Timestamp) -> Value),
}

/// How much of the object a row carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

/// The metadata of a list.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize)]
pub struct ListMeta {
    /// The revision that the list shows.
    #[serde(rename = "resourceVersion", skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The token of the next page.
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
    /// How many items follow.
    #[serde(rename = "remainingItemCount", skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<i64>,
}

/// A table, with its fields in the order of its Go type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    /// The metadata of the list.
    pub metadata: ListMeta,
    /// The columns.
    #[serde(rename = "columnDefinitions")]
    pub columns: Vec<ColumnDefinition>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// A value for each column.
    pub cells: Vec<Value>,
    /// The object, as much of it as was asked for.
    pub object: RowObject,
}

/// The object of a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum RowObject {
    /// `null`
    None,
    /// Its metadata.
    Metadata(PartialObjectMetadata),
    /// All of it.
    Object(Value),
}

/// An object reduced to its metadata.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartialObjectMetadata {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    /// The metadata.
    pub metadata: Value,
}

/// A list of objects reduced to their metadata.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartialObjectMetadataList {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    /// The metadata of the list.
    pub metadata: ListMeta,
    /// The objects; `null` when there are none, as in Kubernetes.
    #[serde(serialize_with = "null_if_empty")]
    pub items: Vec<PartialObjectMetadata>,
}

const API_VERSION: &str = "meta.k8s.io/v1";

impl Table {
    /// A table of objects.
    pub fn new<'o>(
        columns: &[Column],
        metadata: ListMeta,
        objects: impl IntoIterator<Item = &'o Value>,
        include: IncludeObject,
        now: Timestamp,
    ) -> Table {
        let objects = objects.into_iter();
        Table {
            kind: "Table",
            api_version: API_VERSION,
            metadata,
            columns: columns
                .iter()
                .map(|column| column.definition.clone())
                .collect(),
            rows: objects
                .map(|object| Row::new(columns, object, include, now))
                .collect(),
        }
    }

    /// A table without its columns, as watches send after the first.
    #[must_use]
    pub fn without_columns(mut self) -> Table {
        self.columns.clear();
        self
    }
}

impl Row {
    /// The row of an object.
    pub fn new(columns: &[Column], object: &Value, include: IncludeObject, now: Timestamp) -> Row {
        Row {
            cells: columns
                .iter()
                .map(|column| column.cell.of(object, now))
                .collect(),
            object: match include {
                IncludeObject::None => RowObject::None,
                IncludeObject::Metadata => RowObject::Metadata(PartialObjectMetadata::of(object)),
                IncludeObject::Object => RowObject::Object(object.clone()),
            },
        }
    }
}

impl Cell {
    /// The cell of an object.
    pub fn of(&self, object: &Value, now: Timestamp) -> Value {
        match self {
            Cell::Name => crate::meta::Meta::of(object).name().into(),
            Cell::Age(path) => match path.first(object).and_then(Value::as_str) {
                Some(text) => age_cell(text, now),
                None => "<unknown>".into(),
            },
            Cell::Field(path, missing) => path.joined(object).unwrap_or_else(|| missing.clone()),
            Cell::Count(path) => match path.first(object) {
                Some(Value::Array(items)) => items.len().into(),
                Some(Value::Object(fields)) => fields.len().into(),
                _ => 0.into(),
            },
            Cell::Computed(make) => make(object, now),
        }
    }

    /// The age since the object was made.
    pub fn creation_age() -> Cell {
        Cell::Age(FieldPath::of_fields(["metadata", "creationTimestamp"]))
    }
}

fn age_cell(text: &str, now: Timestamp) -> Value {
    match time::parse(text) {
        Ok(then) => human_duration(now.duration_since(then)).into(),
        Err(_) => "<invalid>".into(),
    }
}

impl IncludeObject {
    /// Reads the `includeObject` parameter; the error is the text for the client.
    pub fn parse(text: &str) -> Result<IncludeObject, String> {
        match text {
            "" | "Metadata" => Ok(IncludeObject::Metadata),
            "None" => Ok(IncludeObject::None),
            "Object" => Ok(IncludeObject::Object),
            other => Err(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
                crate::field::quote(other)
            )),
        }
    }
}

impl PartialObjectMetadata {
    /// The metadata of an object.
    pub fn of(object: &Value) -> PartialObjectMetadata {
        let metadata = object.get("metadata").cloned();
        PartialObjectMetadata {
            kind: "PartialObjectMetadata",
            api_version: API_VERSION,
            metadata: metadata.unwrap_or_else(|| Value::Object(serde_json::Map::new())),
        }
    }
}

impl PartialObjectMetadataList {
    /// The metadata of some objects.
    pub fn new<'o>(
        metadata: ListMeta,
        objects: impl IntoIterator<Item = &'o Value>,
    ) -> PartialObjectMetadataList {
        PartialObjectMetadataList {
            kind: "PartialObjectMetadataList",
            api_version: API_VERSION,
            metadata,
            items: objects.into_iter().map(PartialObjectMetadata::of).collect(),
        }
    }
}

fn null_if_empty<S: serde::Serializer>(
    items: &[PartialObjectMetadata],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    if items.is_empty() {
        serializer.serialize_none()
    } else {
        items.serialize(serializer)
    }
}

#[cfg(test)]
mod tests;

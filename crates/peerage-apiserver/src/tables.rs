//! Objects as rows of a Table, for people: the catalogue's columns, with cells as far as they are fields.

use jiff::Timestamp;
use peerage_catalogue::Resource;
use peerage_core::media::MetaVersion;
use peerage_objects::table::{
    Cell, Column, ColumnDefinition, FieldPath, IncludeObject, ListMeta, Table,
};
use peerage_store::Revision;
use serde_json::{Value, json};

use crate::cache::CachedObject;
use crate::call::Call;
use crate::error::ApiError;
use crate::render::{self, Page};

/// The columns of a resource.
pub(crate) fn columns(resource: &Resource) -> Vec<Column> {
    let column = |column: &peerage_catalogue::Column| Column {
        definition: ColumnDefinition {
            name: column.name.to_string(),
            kind: column.kind.to_string(),
            format: column.format.to_string(),
            priority: column.priority,
        },
        cell: cell(resource, &column.name),
    };
    resource.columns.iter().map(column).collect()
}

/// How the cells of a column are made; `<unknown>` for those that no field holds.
fn cell(resource: &Resource, column: &str) -> Cell {
    if let Some((_, path)) = resource
        .rules
        .cells
        .iter()
        .find(|(name, _)| &**name == column)
    {
        return Cell::Field(
            FieldPath::of_fields(path.as_str().split('.')),
            json!("<none>"),
        );
    }
    match column {
        "Name" => Cell::Name,
        "Age" | "Created At" => Cell::creation_age(),
        _ => Cell::Computed(|_, _| json!("<unknown>")),
    }
}

/// A Table of one object.
pub(crate) fn of_object(
    call: &Call,
    version: MetaVersion,
    object: &CachedObject,
) -> Result<Value, ApiError> {
    let meta = ListMeta {
        resource_version: object.revision.to_string(),
        ..ListMeta::default()
    };
    let value = render::value(call, object, object.revision, true)?;
    shown(version, &table(call, meta, &[value])?)
}

/// A Table of a list.
pub(crate) fn of_list(call: &Call, version: MetaVersion, page: &Page) -> Result<Value, ApiError> {
    let values = page
        .objects
        .iter()
        .map(|o| render::value(call, o, o.revision, true));
    let values = values.collect::<Result<Vec<_>, _>>()?;
    shown(
        version,
        &table(call, render::list_meta(call, page), &values)?,
    )
}

/// A Table in a watch frame; the columns come with the first one only.
pub(crate) fn of_frame(
    call: &Call,
    version: MetaVersion,
    object: &CachedObject,
    revision: Revision,
    with_columns: bool,
) -> Result<Value, ApiError> {
    let meta = ListMeta {
        resource_version: revision.to_string(),
        ..ListMeta::default()
    };
    let value = render::value(call, object, revision, true)?;
    let table = table(call, meta, &[value])?;
    let mut shown = shown(version, &table)?;
    if !with_columns {
        shown["columnDefinitions"] = Value::Null;
    }
    Ok(shown)
}

/// A Table without rows that carries a bookmark.
pub(crate) fn bookmark(
    call: &Call,
    version: MetaVersion,
    meta: &Value,
    with_columns: bool,
) -> Value {
    let columns = call
        .served
        .columns
        .iter()
        .map(|c| json!(c.definition))
        .collect();
    json!({
        "kind": "Table", "apiVersion": version.api_version(), "metadata": meta,
        "columnDefinitions": if with_columns { Value::Array(columns) } else { Value::Null },
        "rows": [],
    })
}

fn table(call: &Call, meta: ListMeta, values: &[Value]) -> Result<Table, ApiError> {
    let include = call
        .query()
        .first("includeObject")
        .unwrap_or_default()
        .to_owned();
    let include = IncludeObject::parse(&include).map_err(ApiError::bad_request)?;
    Ok(Table::new(
        &call.served.columns,
        meta,
        values,
        include,
        Timestamp::now(),
    ))
}

/// The table as JSON in the version of `meta.k8s.io` that was asked for; its rows' metadata too.
fn shown(version: MetaVersion, table: &Table) -> Result<Value, ApiError> {
    let mut value = serde_json::to_value(table).map_err(|e| ApiError::untyped(e.to_string()))?;
    if version != MetaVersion::V1 {
        let named = json!(version.api_version());
        for row in value["rows"].as_array_mut().into_iter().flatten() {
            if row["object"]["kind"] == "PartialObjectMetadata" {
                row["object"]["apiVersion"] = named.clone();
            }
        }
        value["apiVersion"] = named;
    }
    Ok(value)
}

//! Objects as rows of a Table, for people: the catalogue's columns, and cells that are fields of the object.

use crate::shim::table;
use peerage_catalogue::Column;
use peerage_core::media::MetaVersion;
use peerage_store::Revision;
use serde_json::{Value, json};

use crate::cache::CachedObject;
use crate::call::Call;
use crate::error::ApiError;
use crate::render::{self, Page};

/// What comes along with each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    fn of(call: &Call) -> Result<Self, ApiError> {
        match call.query().first("includeObject").unwrap_or_default() {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::Nothing),
            "Object" => Ok(Self::Object),
            other => Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}

/// A Table of one object.
pub(crate) fn of_object(
    call: &Call,
    version: MetaVersion,
    object: &CachedObject,
) -> Result<Value, ApiError> {
    let rows = vec![row(call, version, object, object.revision)?];
    let meta = json!({ "resourceVersion": object.revision.to_string() });
    Ok(table(call, version, meta, rows, true))
}

/// A Table of a list.
pub(crate) fn of_list(call: &Call, version: MetaVersion, page: &Page) -> Result<Value, ApiError> {
    Include::of(call)?;
    let rows = page
        .objects
        .iter()
        .map(|o| row(call, version, o, o.revision));
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    Ok(table(
        call,
        version,
        render::list_meta(call, page),
        rows,
        true,
    ))
}

/// A Table in a watch frame; the columns come with the first one only.
pub(crate) fn of_frame(
    call: &Call,
    version: MetaVersion,
    object: &CachedObject,
    revision: Revision,
    with_columns: bool,
) -> Result<Value, ApiError> {
    let meta = json!({ "resourceVersion": revision.to_string() });
    Ok(table(
        call,
        version,
        meta,
        vec![row(call, version, object, revision)?],
        with_columns,
    ))
}

/// A Table without rows that carries a bookmark.
pub(crate) fn bookmark(
    call: &Call,
    version: MetaVersion,
    meta: &Value,
    with_columns: bool,
) -> Value {
    table(call, version, meta.clone(), Vec::new(), with_columns)
}

fn table(
    call: &Call,
    version: MetaVersion,
    meta: Value,
    rows: Vec<Value>,
    with_columns: bool,
) -> Value {
    let columns = call.resource().columns.iter().map(column);
    json!({
        "kind": "Table", "apiVersion": version.api_version(), "metadata": meta,
        "columnDefinitions": if with_columns { Value::Array(columns.collect()) } else { Value::Null },
        "rows": rows,
    })
}

fn column(column: &Column) -> Value {
    json!({
        "name": &*column.name, "type": &*column.kind, "format": &*column.format, "description": "",
        "priority": column.priority,
    })
}

fn row(
    call: &Call,
    version: MetaVersion,
    object: &CachedObject,
    revision: Revision,
) -> Result<Value, ApiError> {
    let value = render::value(call, object, revision, true)?;
    let cells: Vec<Value> = call
        .resource()
        .columns
        .iter()
        .map(|c| cell(call, c, &value))
        .collect();
    let mut row = json!({ "cells": cells });
    match Include::of(call)? {
        Include::Nothing => {}
        Include::Object => row["object"] = value,
        Include::Metadata => {
            row["object"] = json!({
                "kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": value["metadata"],
            });
        }
    }
    Ok(row)
}

/// A cell by the catalogue's path, or by the two names that every kind's columns have.
fn cell(call: &Call, column: &Column, object: &Value) -> Value {
    match &*column.name {
        "Name" => object["metadata"]["name"].clone(),
        "Age" => json!(table::age(
            &object["metadata"]["creationTimestamp"],
            jiff::Timestamp::now().as_second()
        )),
        name => match call
            .resource()
            .rules
            .cells
            .iter()
            .find(|(n, _)| **n == *name)
        {
            Some((_, path)) => table::cell(path.get(object), &column.kind),
            None => json!("<unknown>"),
        },
    }
}

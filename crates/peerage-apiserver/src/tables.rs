//! Objects as rows of a Table, for people: the catalogue's columns, with cells as far as they are fields.

use jiff::Timestamp;
use peerage_core::media::MetaVersion;
use peerage_objects::table::{Column, IncludeObject, ListMeta, Table};
use peerage_store::Revision;
use serde_json::{Value, json};

use crate::cache::CachedObject;
use crate::call::Call;
use crate::error::ApiError;
use crate::render::{self, Page};

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

/// A Table that carries a bookmark: its one row is an object with nothing but metadata.
pub(crate) fn bookmark(
    call: &Call,
    version: MetaVersion,
    revision: Revision,
    meta: &Value,
    with_columns: bool,
) -> Result<Value, ApiError> {
    let list = ListMeta {
        resource_version: revision.to_string(),
        ..ListMeta::default()
    };
    let object = json!({
        "kind": &*call.resource().kind, "apiVersion": call.resource().api_version(), "metadata": meta,
    });
    let mut shown = shown(version, &table(call, list, &[object])?)?;
    if !with_columns {
        shown["columnDefinitions"] = Value::Null;
    }
    Ok(shown)
}

fn table(call: &Call, meta: ListMeta, values: &[Value]) -> Result<Table, ApiError> {
    with_columns(call, &call.served.columns, meta, values)
}

fn with_columns(
    call: &Call,
    columns: &[Column],
    meta: ListMeta,
    values: &[Value],
) -> Result<Table, ApiError> {
    let query = call.query();
    let include = query.first("includeObject").unwrap_or_default();
    let include = IncludeObject::parse(include).map_err(ApiError::bad_request)?;
    Ok(Table::new(columns, meta, values, include, Timestamp::now()))
}

/// A Table of other things than objects of the resource.
pub(crate) fn of_values(
    call: &Call,
    version: MetaVersion,
    columns: &[Column],
    meta: ListMeta,
    values: &[Value],
) -> Result<Value, ApiError> {
    shown(version, &with_columns(call, columns, meta, values)?)
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

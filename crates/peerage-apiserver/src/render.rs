//! Stored objects as clients see them: single objects, lists, watch frames; whole, as Tables, or as metadata
//! alone; in the version of the request.
//!
//! Objects of the version that is stored are spliced from their stored bytes; nothing of them is parsed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{BufMut as _, Bytes};
use http::StatusCode;
use peerage_core::Status;
use peerage_core::media::Convert;
use peerage_http::Response;
use peerage_objects::meta;
use peerage_objects::stored::TypeFields;
use peerage_objects::table::ListMeta;
use peerage_store::Revision;
use serde_json::{Value, json};

use crate::cache::{CachedObject, Content};
use crate::call::Call;
use crate::continuation::Continuation;
use crate::error::ApiError;
use crate::tables;
use crate::write::{from_stored, unreadable};

/// The objects of a list, and how it goes on.
pub(crate) struct Page {
    pub(crate) objects: Vec<Arc<CachedObject>>,
    pub(crate) revision: Revision,
    /// Name of the last object and the revision of the first page, when there is more.
    pub(crate) continuation: Option<(Arc<str>, Revision)>,
    pub(crate) remaining: Option<i64>,
}

/// One object as the answer.
pub(crate) fn object(
    call: &Call,
    code: StatusCode,
    object: &CachedObject,
) -> Result<Response, ApiError> {
    let mut response = match call.accept.convert {
        None => {
            let mut out = Vec::with_capacity(object.size() + 64);
            write_object(call, object, object.revision, TypeFields::Keep, &mut out)?;
            out.put_u8(b'\n');
            call.respond().json(code, out.into())
        }
        Some(Convert::Table(version)) => {
            let table = tables::of_object(call, version, object)?;
            call.respond().document(code, &table)
        }
        Some(Convert::PartialObjectMetadata(version)) => call
            .respond()
            .document(code, &partial(call, version, object, object.revision)?),
        Some(convert @ Convert::PartialObjectMetadataList(_)) => {
            return Err(wrong_number(call, convert, false));
        }
    };
    call.warnings.apply(response.headers_mut());
    Ok(response)
}

/// A list as the answer.
pub(crate) fn list(call: &Call, page: Page) -> Result<Response, ApiError> {
    let mut response = match call.accept.convert {
        None => call
            .respond()
            .json(StatusCode::OK, list_bytes(call, &page)?),
        Some(Convert::Table(version)) => call
            .respond()
            .document(StatusCode::OK, &tables::of_list(call, version, &page)?),
        Some(Convert::PartialObjectMetadataList(version)) => {
            let items = page
                .objects
                .iter()
                .map(|o| partial(call, version, o, o.revision));
            let items = items.collect::<Result<Vec<_>, _>>()?;
            let list = json!({
                "kind": "PartialObjectMetadataList", "apiVersion": version.api_version(),
                "metadata": list_meta(call, &page),
                "items": if items.is_empty() { Value::Null } else { Value::from(items) },
            });
            call.respond().document(StatusCode::OK, &list)
        }
        Some(convert @ Convert::PartialObjectMetadata(_)) => {
            return Err(wrong_number(call, convert, true));
        }
    };
    call.warnings.apply(response.headers_mut());
    Ok(response)
}

/// 406: metadata of one object was asked for and there is a list, or the other way round.
fn wrong_number(call: &Call, convert: Convert, is_list: bool) -> ApiError {
    let group = call
        .resource()
        .group
        .split('.')
        .next()
        .filter(|g| !g.is_empty())
        .unwrap_or("core");
    let kind = if is_list {
        &call.resource().list_kind
    } else {
        &call.resource().kind
    };
    let text = convert
        .check(is_list, &format!("{group}.{kind}"))
        .err()
        .unwrap_or_default();
    Status::not_acceptable(text).into()
}

fn list_bytes(call: &Call, page: &Page) -> Result<Bytes, ApiError> {
    let size: usize = page.objects.iter().map(|o| o.size() + 48).sum();
    let mut out = Vec::with_capacity(size + 256);
    let kind = json!(&*call.resource().list_kind);
    let version = json!(call.resource().api_version());
    let meta = json!(list_meta(call, page));
    out.put_slice(
        format!("{{\"kind\":{kind},\"apiVersion\":{version},\"metadata\":{meta},\"items\":[")
            .as_bytes(),
    );
    for (at, object) in page.objects.iter().enumerate() {
        if at > 0 {
            out.put_u8(b',');
        }
        write_object(call, object, object.revision, TypeFields::Omit, &mut out)?;
    }
    out.put_slice(b"]}\n");
    Ok(out.into())
}

/// `metadata` of a list.
pub(crate) fn list_meta(call: &Call, page: &Page) -> ListMeta {
    let continue_token = page
        .continuation
        .as_ref()
        .map_or_else(String::new, |(last, revision)| {
            let prefix = call.prefix();
            let last = last.strip_prefix(prefix.as_str()).unwrap_or(last);
            Continuation::after(last, *revision).token()
        });
    ListMeta {
        resource_version: page.revision.to_string(),
        continue_token,
        remaining_item_count: page.remaining.filter(|r| *r > 0),
    }
}

/// Appends the object's JSON in the request's version: spliced from the stored bytes when that is the version they
/// are in. The items of a list of built-in kinds do without type fields.
fn write_object(
    call: &Call,
    object: &CachedObject,
    revision: Revision,
    types: TypeFields,
    out: &mut Vec<u8>,
) -> Result<(), ApiError> {
    if let Content::Json(json) = &object.content
        && revision > 0
        && json.api_version() == call.served.api_version
    {
        json.write(out, types, revision);
        return Ok(());
    }
    let value = value(call, object, revision, types == TypeFields::Keep)?;
    serde_json::to_writer(out, &value).map_err(|e| unreadable(call, object, &e.to_string()))
}

/// The object as a value in the request's version.
pub(crate) fn value(
    call: &Call,
    object: &CachedObject,
    revision: Revision,
    typed: bool,
) -> Result<Value, ApiError> {
    let mut value = from_stored(call, object)?;
    if revision != object.revision {
        meta::set_resource_version(&mut value, &revision.to_string());
    }
    if !typed && let Some(map) = value.as_object_mut() {
        map.remove("kind");
        map.remove("apiVersion");
    }
    Ok(value)
}

/// The object's metadata alone.
fn partial(
    call: &Call,
    version: peerage_core::media::MetaVersion,
    object: &CachedObject,
    revision: Revision,
) -> Result<Value, ApiError> {
    let value = value(call, object, revision, false)?;
    Ok(json!({
        "kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": value["metadata"],
    }))
}

/// Kinds of watch events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Added,
    Modified,
    Deleted,
}

impl FrameKind {
    fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// The last frame of a watch has been written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended;

/// Writes the frames of one watch: `{"type":…,"object":…}` and a newline each.
pub(crate) struct Frames {
    /// Column definitions come with the first frame only.
    columns_sent: AtomicBool,
}

impl Frames {
    /// Frames in the form that the client accepts.
    pub(crate) fn new(call: &Call) -> Result<Self, ApiError> {
        if let Some(convert @ Convert::PartialObjectMetadataList(_)) = call.accept.convert {
            return Err(wrong_number(call, convert, false));
        }
        Ok(Self {
            columns_sent: AtomicBool::new(false),
        })
    }

    /// One object's change at `revision`. If it cannot be shown, the error is what is written, and the watch is over:
    /// what comes after a gap is worth nothing.
    pub(crate) fn object(
        &self,
        call: &Call,
        kind: FrameKind,
        object: &CachedObject,
        revision: Revision,
        out: &mut Vec<u8>,
    ) -> Result<(), Ended> {
        let start = out.len();
        self.try_object(call, kind, object, revision, out)
            .map_err(|error| {
                out.truncate(start);
                self.error(&error, out);
                Ended
            })
    }

    fn try_object(
        &self,
        call: &Call,
        kind: FrameKind,
        object: &CachedObject,
        revision: Revision,
        out: &mut Vec<u8>,
    ) -> Result<(), ApiError> {
        out.put_slice(b"{\"type\":\"");
        out.put_slice(kind.name().as_bytes());
        out.put_slice(b"\",\"object\":");
        match call.accept.convert {
            None | Some(Convert::PartialObjectMetadataList(_)) => {
                write_object(call, object, revision, TypeFields::Keep, out)?
            }
            Some(Convert::PartialObjectMetadata(version)) => {
                put(&partial(call, version, object, revision)?, out)
            }
            Some(Convert::Table(version)) => {
                let with_columns = !self.columns_sent.swap(true, Ordering::Relaxed);
                put(
                    &tables::of_frame(call, version, object, revision, with_columns)?,
                    out,
                );
            }
        }
        out.put_slice(b"}\n");
        Ok(())
    }

    /// A bookmark: everything up to `revision` has been sent.
    pub(crate) fn bookmark(
        &self,
        call: &Call,
        revision: Revision,
        initial_end: bool,
        out: &mut Vec<u8>,
    ) {
        let mut meta = json!({ "resourceVersion": revision.to_string() });
        if initial_end {
            meta["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let object = match call.accept.convert {
            Some(Convert::Table(version)) => {
                let with_columns = !self.columns_sent.swap(true, Ordering::Relaxed);
                match tables::bookmark(call, version, revision, &meta, with_columns) {
                    Ok(table) => table,
                    Err(error) => return self.error(&error, out),
                }
            }
            Some(Convert::PartialObjectMetadata(version)) => {
                json!({ "kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": meta })
            }
            _ => {
                let mut empty = call.api().catalogue.empty_object(call.resource());
                empty["metadata"] = meta;
                empty
            }
        };
        put(&json!({ "type": "BOOKMARK", "object": object }), out);
        out.put_u8(b'\n');
    }

    /// The last frame of a watch that cannot go on.
    pub(crate) fn error(&self, error: &ApiError, out: &mut Vec<u8>) {
        let status = match error {
            ApiError::Status(status) => serde_json::to_value(status).unwrap_or_default(),
            ApiError::Plain(plain) => {
                json!({ "kind": "Status", "apiVersion": "v1", "message": plain.body, "code": plain.code })
            }
        };
        put(&json!({ "type": "ERROR", "object": status }), out);
        out.put_u8(b'\n');
    }
}

fn put(value: &Value, out: &mut Vec<u8>) {
    out.put_slice(value.to_string().as_bytes());
}

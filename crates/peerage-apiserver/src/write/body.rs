//! From the bytes of a request body to an object of the request's version.

use std::time::Duration;

use bytes::Bytes;
use peerage_catalogue::Resource;
use peerage_core::Status;
use peerage_core::media::{BodyType, Media, body_type};
use peerage_http::Body;
use peerage_objects::body as texts;
use peerage_objects::json::{self, Node};
use peerage_objects::protobuf;
use peerage_objects::schema::{self, DecodeError, Decoded, TypeId};
use serde_json::{Value, json};

use super::options::FieldValidation;
use crate::call::Call;
use crate::error::ApiError;

/// Longest pause between two parts of a body.
const PAUSE: Duration = Duration::from_secs(30);

/// What a body is read as.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) type_id: Option<TypeId>,
    /// Whether it may name any version: options are the same in every group-version.
    pub(crate) any_version: bool,
}

impl<'a> Wanted<'a> {
    /// An object of the resource.
    pub(crate) fn of(resource: &'a Resource) -> Self {
        Self {
            group: &resource.group,
            version: &resource.version,
            kind: &resource.kind,
            type_id: resource.type_id,
            any_version: false,
        }
    }

    fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// Reads a body up to the server's limit. What comes back is JSON, or YAML with [`BodyType::Yaml`].
pub(crate) async fn read(call: &Call, body: Body) -> Result<Bytes, ApiError> {
    let limit = call.api().limits.body;
    peerage_http::body::collect(body, limit, PAUSE)
        .await
        .map_err(|error| match error {
            peerage_http::body::CollectError::TooLarge { .. } => {
                Status::too_large(format!("limit is {limit}")).into()
            }
            other => ApiError::bad_request(other),
        })
}

/// The body as JSON, whatever it was sent as; recorded as far as the audit policy asks for it.
pub(crate) fn as_json(call: &Call, wanted: Wanted<'_>, bytes: Bytes) -> Result<Bytes, ApiError> {
    let json = to_json(call, wanted, bytes)?;
    record(call, &json);
    Ok(json)
}

/// Records the request's object, or its patch.
pub(crate) fn record(call: &Call, json: &[u8]) {
    if let Some(audit) = call.audit() {
        audit.request_object(json);
    }
}

fn to_json(call: &Call, wanted: Wanted<'_>, bytes: Bytes) -> Result<Bytes, ApiError> {
    let content_type = call
        .parts
        .headers
        .get(http::header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok());
    match body_type(content_type).map_err(Status::from)? {
        BodyType::Json => Ok(bytes),
        BodyType::Yaml => {
            let text = String::from_utf8_lossy(&bytes);
            let value: Value =
                serde_saphyr::from_str(first_document(&text)).map_err(ApiError::bad_request)?;
            Ok(value.to_string().into())
        }
        BodyType::Protobuf => from_protobuf(call, wanted, &bytes),
    }
}

/// The JSON of a body in protobuf. One that says to be of another type is only as much as tells so.
fn from_protobuf(call: &Call, wanted: Wanted<'_>, bytes: &[u8]) -> Result<Bytes, ApiError> {
    let catalogue = &call.api().catalogue;
    let Some(ty) = wanted.type_id else {
        let accepted = [Media::Json.content_type(), Media::Yaml.content_type()];
        return Err(Status::unsupported_media_type(&accepted).into());
    };
    let envelope = protobuf::open(bytes).map_err(|e| match wanted.any_version {
        true => ApiError::bad_request(e),
        false => ApiError::bad_request(texts::unrecognized(wanted.kind, &e, bytes)),
    })?;
    let is_wanted = (envelope.kind.is_empty() || envelope.kind == wanted.kind)
        && (wanted.any_version
            || envelope.api_version.is_empty()
            || envelope.api_version == wanted.api_version());
    let mut object = json!({});
    if is_wanted {
        let messages = catalogue
            .messages()
            .map_err(|e| Status::internal(e.to_string()))?;
        object = protobuf::decode(catalogue.types(), messages, ty, envelope.raw)
            .map_err(ApiError::bad_request)?;
    }
    if !envelope.kind.is_empty() {
        object["kind"] = json!(envelope.kind);
    }
    if !envelope.api_version.is_empty() {
        object["apiVersion"] = json!(envelope.api_version);
    }
    Ok(object.to_string().into())
}

/// Only the first document of a YAML stream counts, as in Kubernetes.
fn first_document(text: &str) -> &str {
    let text = text.strip_prefix("---\n").unwrap_or(text);
    text.split_once("\n---\n").map_or(text, |(first, _)| first)
}

/// The object in a body of JSON, over the one that is `stored`, whose fields unknown to this version stay.
/// Faults of its fields are handled as `validation` says.
pub(crate) fn object(
    call: &Call,
    wanted: Wanted<'_>,
    bytes: &[u8],
    stored: Option<&Value>,
    validation: FieldValidation,
) -> Result<Value, ApiError> {
    let unrecognized = |e: &dyn std::fmt::Display| {
        ApiError::bad_request(texts::unrecognized(wanted.kind, e, bytes))
    };
    let node = json::parse(bytes).map_err(|e| unrecognized(&texts::TypeMetaError::from(e)))?;
    let said = texts::type_meta(&node).map_err(|e| unrecognized(&e))?;
    check_type(call, wanted, &said)?;
    typed(call, wanted, &node, stored, validation)
}

/// Reads a value by the schema of its kind.
fn typed(
    call: &Call,
    wanted: Wanted<'_>,
    node: &Node<'_>,
    stored: Option<&Value>,
    validation: FieldValidation,
) -> Result<Value, ApiError> {
    let refused = |e: &dyn std::fmt::Display| {
        ApiError::bad_request(texts::cannot_be_handled(
            wanted.kind,
            wanted.version,
            wanted.kind,
            e,
        ))
    };
    let decoded = decode(call, wanted, node, stored).map_err(|e| refused(&e))?;
    if validation == FieldValidation::Strict && !decoded.strict.is_empty() {
        return Err(refused(&schema::strict_error(&decoded.strict)));
    }
    warn(call, validation, &decoded.strict);
    Ok(named(wanted, decoded.value))
}

/// What the schema makes of a value, over the one that is `stored`.
pub(crate) fn decode(
    call: &Call,
    wanted: Wanted<'_>,
    node: &Node<'_>,
    stored: Option<&Value>,
) -> Result<Decoded, DecodeError> {
    let types = call.api().catalogue.types();
    match (wanted.type_id, stored) {
        (None, _) => Ok(Decoded {
            value: node.to_value(),
            strict: node.duplicate_fields(100),
        }),
        (Some(ty), None) => schema::decode(types, ty, node),
        (Some(ty), Some(stored)) => schema::decode_over(types, ty, node, stored),
    }
}

/// Warns of fields that were dropped, each once.
pub(crate) fn warn(call: &Call, validation: FieldValidation, faults: &[String]) {
    if validation == FieldValidation::Warn {
        faults
            .iter()
            .for_each(|fault| call.warnings.add(fault.clone()));
    }
}

/// The object with its type fields.
pub(crate) fn named(wanted: Wanted<'_>, mut object: Value) -> Value {
    if !object.is_object() {
        object = json!({});
    }
    object["apiVersion"] = json!(wanted.api_version());
    object["kind"] = json!(wanted.kind);
    object
}

/// A body may leave its type out, not name another.
fn check_type(call: &Call, wanted: Wanted<'_>, said: &texts::TypeMeta) -> Result<(), ApiError> {
    let (version, kind) = (said.api_version.as_str(), said.kind.as_str());
    let expected = wanted.api_version();
    let same_version = version.is_empty() || version == expected;
    if same_version && (kind.is_empty() || kind == wanted.kind) {
        return Ok(());
    }
    let said_version = if version.is_empty() {
        expected.as_str()
    } else {
        version
    };
    let (group, bare) = said_version.split_once('/').unwrap_or(("", said_version));
    let said_kind = if kind.is_empty() { wanted.kind } else { kind };
    if said_kind == wanted.kind && group == wanted.group && knows(call, group, bare, said_kind)
        || said_kind == wanted.kind
            && group != wanted.group
            && !group.is_empty()
            && !wanted.group.is_empty()
    {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({said_version}) does not match the expected API version ({expected})"
        )));
    }
    let why = if knows(call, group, bare, said_kind) {
        let wanted_group = wanted
            .group
            .split('.')
            .next()
            .filter(|g| !g.is_empty())
            .unwrap_or("core");
        texts::unknown_conversion(bare, said_kind, wanted_group, wanted.kind)
    } else {
        texts::no_kind_registered(said_version, said_kind)
    };
    Err(ApiError::bad_request(texts::cannot_be_handled(
        said_kind,
        bare,
        wanted.kind,
        &why,
    )))
}

/// Whether this version of Kubernetes has the kind, or a list of it.
fn knows(call: &Call, group: &str, version: &str, kind: &str) -> bool {
    let catalogue = &call.api().catalogue;
    catalogue
        .kind(group, version, kind.strip_suffix("List").unwrap_or(kind))
        .is_some()
        || catalogue.kind(group, version, kind).is_some()
}

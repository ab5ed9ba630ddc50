//! The `scale` subresource: an `autoscaling/v1` Scale in place of the object, mapped onto three of its fields.

use http::{Method, StatusCode};
use peerage_core::Status;
use peerage_core::media::Convert;
use peerage_http::{Body, Response};
use peerage_objects::meta;
use peerage_objects::patch::Patch;
use peerage_objects::table::{Cell, Column, ColumnDefinition, FieldPath, ListMeta};
use serde_json::{Value, json};

use super::update::Preconditions;
use crate::cache::CachedObject;
use crate::call::Call;
use crate::error::ApiError;
use crate::tables;
use crate::write::{self, Change, WriteOptions, body, from_stored};

/// Answers a get, update or patch of a Scale.
pub(crate) async fn scale(call: Call, request: Body) -> Result<Response, ApiError> {
    let call = &call;
    if call.parts.method == Method::GET {
        call.fresh().await?;
        let object = call
            .place()?
            .cache
            .get(&call.name_of(call.info.name()))
            .ok_or_else(|| call.not_found())?;
        let scale = of_object(&from_stored(call, &object)?);
        return show(call, scale);
    }
    let sent = Sent::read(call, request).await?;
    let committed = write::modify(
        call,
        &sent.options,
        call.info.name(),
        Change::Main,
        |old, current| {
            let scale = sent.apply(call, old)?;
            check(call, &scale, old, current)?;
            let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
            if replicas < 0 {
                return Err(negative(call, replicas));
            }
            let mut new = old.clone();
            new["spec"]["replicas"] = json!(replicas);
            Ok(new)
        },
    )
    .await?;
    show(call, of_object(&from_stored(call, &committed.object)?))
}

/// A Scale as the client wants to see it.
fn show(call: &Call, scale: Value) -> Result<Response, ApiError> {
    let metadata = &scale["metadata"];
    let shown = match call.accept.convert {
        Some(Convert::PartialObjectMetadata(version)) => json!({
            "kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": metadata,
        }),
        Some(Convert::Table(version)) => {
            let meta = ListMeta {
                resource_version: metadata["resourceVersion"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
                ..ListMeta::default()
            };
            tables::of_values(call, version, &columns(), meta, &[scale])?
        }
        _ => scale,
    };
    let mut response = call.respond().document(StatusCode::OK, &shown);
    call.warnings.apply(response.headers_mut());
    Ok(response)
}

/// The columns of a Scale's Table.
fn columns() -> Vec<Column> {
    let column = |name: &str, kind: &str, cell| Column {
        definition: ColumnDefinition {
            name: name.to_owned(),
            kind: kind.to_owned(),
            format: String::new(),
            priority: 0,
        },
        cell,
    };
    let number = |part| Cell::Field(FieldPath::of_fields([part, "replicas"]), json!(0));
    vec![
        column("Name", "string", Cell::Name),
        column("Desired", "integer", number("spec")),
        column("Available", "integer", number("status")),
        column("Age", "string", Cell::creation_age()),
    ]
}

/// What a Scale is read as.
fn wanted(call: &Call) -> body::Wanted<'static> {
    body::Wanted {
        group: "autoscaling",
        version: "v1",
        kind: "Scale",
        type_id: call.served.subresource("scale").and_then(|s| s.type_id),
        any_version: false,
    }
}

/// What a write of a Scale sends.
struct Sent {
    options: WriteOptions,
    what: What,
}

enum What {
    Scale(Value),
    Patch(Patch),
}

impl Sent {
    async fn read(call: &Call, request: Body) -> Result<Self, ApiError> {
        if call.parts.method == Method::PATCH {
            let (options, patch) = super::patch::read(call, request).await?;
            return Ok(Self {
                options,
                what: What::Patch(patch),
            });
        }
        let options = WriteOptions::parse(&call.query(), "UpdateOptions")?;
        let wanted = wanted(call);
        let bytes = body::as_json(call, wanted, body::read(call, request).await?)?;
        let scale = body::object(call, wanted, &bytes, None, options.field_validation)?;
        meta::check_name(&scale, call.info.name()).map_err(|e| e.status())?;
        Ok(Self {
            options,
            what: What::Scale(scale),
        })
    }

    fn apply(&self, call: &Call, old: &Value) -> Result<Value, ApiError> {
        match &self.what {
            What::Scale(scale) => Ok(scale.clone()),
            What::Patch(patch) => {
                let before = of_object(old);
                let mut scale = before.clone();
                let types = call.api().catalogue.types();
                let wanted = wanted(call);
                let ty = wanted.type_id.unwrap_or(super::patch::UNTYPED);
                patch.apply(types, ty, &mut scale).map_err(|e| e.status())?;
                let validation = self.options.field_validation;
                super::patch::typed(call, wanted, patch, &scale, &before, validation)
            }
        }
    }
}

fn check(call: &Call, scale: &Value, old: &Value, current: &CachedObject) -> Result<(), ApiError> {
    let name = scale["metadata"]["name"].as_str().unwrap_or_default();
    if !name.is_empty() && name != call.info.name() {
        let url = call.info.name();
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({url})"
        )));
    }
    Preconditions::of(scale)?.check(call, old, current)
}

fn negative(call: &Call, replicas: i64) -> ApiError {
    let cause = peerage_core::StatusCause::invalid(
        "spec.replicas",
        replicas,
        "must be greater than or equal to 0",
    );
    let kind = peerage_core::GroupKind::new("autoscaling", "Scale");
    Status::invalid(kind, call.info.name(), vec![cause]).into()
}

/// The Scale of an object.
fn of_object(object: &Value) -> Value {
    let meta = &object["metadata"];
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"], "creationTimestamp": meta["creationTimestamp"],
        },
        "spec": {},
        "status": { "replicas": object["status"]["replicas"].as_i64().unwrap_or(0) },
    });
    if let Some(replicas) = object["spec"]["replicas"].as_i64().filter(|r| *r != 0) {
        scale["spec"]["replicas"] = json!(replicas);
    }
    if let Some(selector) = selector(&object["spec"]["selector"]) {
        scale["status"]["selector"] = json!(selector);
    }
    scale
}

/// A selector as text: of a LabelSelector, or of the plain map of a replication controller.
fn selector(selector: &Value) -> Option<String> {
    let labels =
        if selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some() {
            peerage_objects::selector::from_object(selector)
                .ok()?
                .to_string()
        } else {
            let map = selector.as_object()?;
            map.iter()
                .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()))
                .collect::<Vec<_>>()
                .join(",")
        };
    Some(labels).filter(|s| !s.is_empty())
}

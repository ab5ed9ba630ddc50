//! PUT of an object or of a part of it.

use http::StatusCode;
use peerage_core::Status;
use peerage_http::{Body, Response};
use peerage_objects::field::FieldError;
use peerage_objects::meta;
use serde_json::{Value, json};

use crate::authz::Attributes;
use crate::cache::CachedObject;
use crate::call::Call;
use crate::error::ApiError;
use crate::list_options::parse_version;
use crate::render;
use crate::write::options::FieldValidation;
use crate::write::{self, Change, WriteOptions, before_create, body};

/// Times that an update of a missing object is tried as an update again, because somebody has just created it.
const CREATE_TRIES: usize = 8;

/// Replaces an object.
pub(crate) async fn update(
    call: &Call,
    request: Body,
    change: Change,
) -> Result<Response, ApiError> {
    let options = WriteOptions::parse(&call.query(), "UpdateOptions")?;
    let wanted = body::Wanted::of(call.resource());
    let bytes = body::as_json(call, wanted, body::read(call, request).await?)?;
    // What is stored decides later which fields are unknown: those that it has may be repeated.
    let object = body::object(call, wanted, &bytes, None, FieldValidation::Ignore)?;
    let name = call.info.name();
    meta::check_name(&object, name).map_err(|e| e.status())?;
    let sent = Preconditions::of(&object)?;
    for _ in 0..CREATE_TRIES {
        let result = write::modify(call, &options, name, change, |old, current| {
            sent.check(call, old, current)?;
            if call.resource().rules.conditional_update && sent.version.is_none() {
                return Err(unconditional(call, name));
            }
            body::object(call, wanted, &bytes, Some(old), options.field_validation)
        })
        .await;
        let missing = match result {
            Err(error) if error.code() == 404 => error,
            other => return render::object(call, StatusCode::OK, &other?.object),
        };
        let object = body::object(call, wanted, &bytes, None, options.field_validation)?;
        if change != Change::Main || !may_create(call, &sent) {
            return Err(missing);
        }
        match create_on_update(call, &options, object).await {
            Err(error) if error.is_conflict() => {}
            other => return other,
        }
    }
    Err(Status::server_timeout(call.group_resource(), "update", 1).into())
}

/// 422 for kinds whose updates have to say what they are based on.
fn unconditional(call: &Call, name: &str) -> ApiError {
    let why = "must be specified for an update";
    let error = FieldError::invalid("metadata.resourceVersion", 0, why);
    ApiError::invalid(call.resource(), name, vec![error])
}

fn may_create(call: &Call, sent: &Preconditions) -> bool {
    call.resource().rules.create_on_update && sent.uid.is_none()
}

async fn create_on_update(
    call: &Call,
    options: &WriteOptions,
    mut object: Value,
) -> Result<Response, ApiError> {
    let attributes = Attributes {
        verb: "create",
        ..Attributes::of(&call.info)
    };
    let decision = call.api().authorizer.decide(&call.user, &attributes);
    if !decision.allowed {
        let user = &call.user.name;
        return Err(Status::forbidden_verb(user, "create", &call.info, &decision.reason()).into());
    }
    object["metadata"]["name"] = json!(call.info.name());
    before_create(
        &call.api().catalogue,
        call.resource(),
        &mut object,
        call.info.namespace(),
        &call.user,
    )
    .map_err(|e| e.status())?;
    let committed = write::create(call, options, object).await?;
    render::object(call, StatusCode::CREATED, &committed.object)
}

/// What the object of a request says of the state that it is based on.
pub(super) struct Preconditions {
    version: Option<i64>,
    uid: Option<String>,
}

impl Preconditions {
    pub(super) fn of(object: &Value) -> Result<Self, ApiError> {
        let text = |key: &str| object["metadata"][key].as_str().filter(|t| !t.is_empty());
        let version = match text("resourceVersion") {
            None | Some("0") => None,
            Some(text) => {
                let parsed = parse_version(text);
                Some(parsed.map_err(|_| {
                    ApiError::untyped(format!(
                        "strconv.ParseUint: parsing {text:?}: invalid syntax"
                    ))
                })?)
            }
        };
        Ok(Self {
            version,
            uid: text("uid").map(str::to_owned),
        })
    }

    /// That the object has not been changed since.
    pub(super) fn check_version(
        &self,
        call: &Call,
        current: &CachedObject,
    ) -> Result<(), ApiError> {
        if self.version.is_some_and(|v| v != current.revision) {
            let name = current.own_name();
            return Err(Status::modified(call.group_resource(), name).into());
        }
        Ok(())
    }

    pub(super) fn check(
        &self,
        call: &Call,
        old: &Value,
        current: &CachedObject,
    ) -> Result<(), ApiError> {
        self.check_version(call, current)?;
        let name = current.own_name();
        let actual = old["metadata"]["uid"].as_str().unwrap_or_default();
        match &self.uid {
            Some(uid) if uid != actual => {
                // Differs: kube-apiserver's text shows the storage key.
                let why = format!(
                    "Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}"
                );
                Err(Status::conflict(call.group_resource(), name, &why).into())
            }
            _ => Ok(()),
        }
    }
}

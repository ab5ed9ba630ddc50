//! DELETE of one object: at once, or by marking it when something has to happen first (finalizers, a grace
//! period, dependents that go before it).

use std::sync::Arc;

use http::StatusCode;
use jiff::Timestamp;
use peerage_catalogue::rules::DeleteReturns;
use peerage_core::{GroupResource, Status};
use peerage_http::{Body, Response};
use peerage_objects::meta::{self, Meta};
use serde_json::{Value, json};

use crate::cache::CachedObject;
use crate::call::Call;
use crate::error::ApiError;
use crate::render;
use crate::write::delete_options::DeleteOptions;
use crate::write::{self, Change, Committed, WriteOptions, admission, body, from_stored};

/// Runs while others change the object at the same time.
const TRIES: usize = 64;

/// Deletes an object.
pub(crate) async fn delete(call: &Call, request: Body) -> Result<Response, ApiError> {
    let options = read_options(call, request).await?;
    let name = call.info.name();
    admission::deletable(call, name)?;
    let committed = one(call, &options, name).await?;
    // An object that stays is always shown; one that is gone only by some kinds.
    if !committed.deleted || call.resource().rules.delete_returns == DeleteReturns::Object {
        return render::object(call, StatusCode::OK, &committed.object);
    }
    let uid = uid_of(&committed.object);
    let status = Status::success(call.group_resource(), name, &uid);
    Ok(call.respond().document(StatusCode::OK, &status))
}

/// The options of a DELETE.
pub(super) async fn read_options(call: &Call, request: Body) -> Result<DeleteOptions, ApiError> {
    let bytes = body::read(call, request).await?;
    let bytes = if bytes.is_empty() {
        bytes
    } else {
        body::as_json(call, options_type(call), bytes)?
    };
    DeleteOptions::parse(&call.query(), &bytes)
}

/// `DeleteOptions` may name the resource's own group-version or that of `meta`; their content is the same.
fn options_type(call: &Call) -> body::Wanted<'static> {
    let catalogue = &call.api().catalogue;
    body::Wanted {
        group: "",
        version: "v1",
        kind: "DeleteOptions",
        type_id: catalogue.type_by_name("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"),
        any_version: true,
    }
}

/// Deletes the object of that name.
pub(super) async fn one(
    call: &Call,
    options: &DeleteOptions,
    name: &str,
) -> Result<Committed, ApiError> {
    let place = call.place()?;
    let writing = WriteOptions {
        dry_run: options.dry_run,
        ..WriteOptions::default()
    };
    let mut current = write::current(call, place, name).await?;
    if options.dry_run {
        // Nothing will compare the cache's state with the store's.
        let newer = write::reload(call, place, &current).await?;
        current = newer.unwrap_or(current);
    }
    for _ in 0..TRIES {
        let object = from_stored(call, &current)?;
        if let Err(error) = check(call, options, &object, &current) {
            // Only what the store says now can refuse.
            match write::reload(call, place, &current).await? {
                Some(newer) => {
                    current = newer;
                    continue;
                }
                None => return Err(error),
            }
        }
        let plan = Plan::of(call, options, &object);
        if plan.now {
            match write::remove(call, &writing, &current, marked(&object, &plan)).await? {
                Ok(committed) => return Ok(committed),
                Err(newer) => current = newer,
            }
            continue;
        }
        return write::modify(call, &writing, name, Change::Mark, |old, current| {
            check(call, options, old, current)?;
            Ok(marked(old, &Plan::of(call, options, old)))
        })
        .await;
    }
    Err(Status::server_timeout(call.group_resource(), "delete", 1).into())
}

fn check(
    call: &Call,
    options: &DeleteOptions,
    object: &Value,
    current: &CachedObject,
) -> Result<(), ApiError> {
    let kind = GroupResource::new(&call.resource().group, &call.resource().kind);
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    if let Some(wanted) = options.uid.as_deref().filter(|w| *w != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        );
        return Err(Status::conflict(kind, current.own_name(), &why).into());
    }
    let revision = current.revision.to_string();
    if let Some(wanted) = options
        .resource_version
        .as_deref()
        .filter(|w| *w != revision)
    {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({revision}). The object might have been modified"
        );
        return Err(Status::conflict(kind, current.own_name(), &why).into());
    }
    Ok(())
}

/// What deleting an object comes to.
struct Plan {
    /// It goes now; else it is marked.
    now: bool,
    grace: i64,
    finalizers: Vec<String>,
    /// There is nothing to mark: it has been marked before with a grace that is as short, or it goes at once and
    /// its kind knows no grace.
    unchanged: bool,
}

impl Plan {
    fn of(call: &Call, options: &DeleteOptions, object: &Value) -> Self {
        let present = Meta::of(object).finalizers();
        let finalizers = meta::propagation_finalizers(&present, options.propagation);
        let held = object["metadata"]["deletionGracePeriodSeconds"].as_i64();
        let terminating = object["metadata"]["deletionTimestamp"].is_string();
        let catalogue = &call.api().catalogue;
        let graceful = catalogue.grace_seconds(call.resource(), object, options.grace_seconds);
        let grace = graceful.unwrap_or(0);
        let grace = if terminating {
            grace.min(held.unwrap_or(0))
        } else {
            grace
        };
        let spec = object["spec"]["finalizers"].as_array();
        let waits = &*call.resource().kind == "Namespace" && spec.is_some_and(|f| !f.is_empty());
        let now = finalizers.is_empty() && grace == 0 && !waits;
        let marked = terminating && held.unwrap_or(0) == grace && finalizers == present;
        Self {
            now,
            unchanged: marked || now && graceful.is_none(),
            grace,
            finalizers,
        }
    }
}

/// The object with the marks of its deletion.
fn marked(object: &Value, plan: &Plan) -> Value {
    let mut object = object.clone();
    if plan.unchanged {
        return object;
    }
    meta::mark_deleting(&mut object, Timestamp::now(), plan.grace);
    let fields = meta::meta_mut(&mut object);
    if plan.finalizers.is_empty() {
        fields.remove("finalizers");
    } else {
        fields.insert("finalizers".to_owned(), json!(plan.finalizers));
    }
    if object["kind"] == "Namespace" {
        // A namespace waits for what is in it, not for a time.
        meta::meta_mut(&mut object).remove("deletionGracePeriodSeconds");
        object["status"]["phase"] = json!("Terminating");
    }
    object
}

fn uid_of(object: &Arc<CachedObject>) -> String {
    let value = object.parse::<Value>().unwrap_or_default();
    value["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}
